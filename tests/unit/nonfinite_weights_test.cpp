// Weights that are NaN or infinite, beside padding: docs/trust/numbers.md says which outputs they
// change.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "convoy/plan.hpp"
#include "plain_options.hpp"

namespace convoy {
namespace {

// Taps in the padding are skipped, on the CPU by every kernel: they multiply nothing.
void expect_skipped(const Plan& plan, const Tensor& w, const std::string& where) {
  const Stage& s = plan.stage();
  Tensor x(DType::f32, x_shape(s)), y(DType::f32, y_shape(s));
  for (Index i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = 0.1F * static_cast<float>(i % 11) - 0.43F;
  Operands operands;
  operands.x = x;
  operands.y = y;
  plan.run(operands).or_throw();
  const Index of_group = s.c / s.groups, out_w = plan.shapes().out_w, out_h = plan.shapes().out_h;
  for (Index at = 0; at < y.elements(); ++at) {
    const Index k = at % s.k, q = at / s.k % out_w, p = at / s.k / out_w % out_h;
    double sum = 0;
    for (Index r = 0; r < s.r; ++r)
      for (Index t = 0; t < s.s; ++t) {
        const Index row = p + r - s.pad.top, column = q + t - s.pad.left;
        if (row < 0 || row >= s.h || column < 0 || column >= s.w) continue;
        for (Index c = 0; c < of_group; ++c)
          sum += static_cast<double>(x.data<float>()[(row * s.w + column) * s.c +
                                                     k / (s.k / s.groups) * of_group + c]) *
                 static_cast<double>(w.data<float>()[((k * s.r + r) * s.s + t) * of_group + c]);
      }
    const float got = y.data<float>()[at];
    ASSERT_EQ(std::isnan(got), std::isnan(sum)) << where << ", output " << at;
    ASSERT_EQ(std::isinf(got), std::isinf(sum)) << where << ", output " << at;
    if (std::isfinite(got)) {
      ASSERT_NEAR(got, sum, 1e-3) << where << ", output " << at;
    }
  }
}

TEST(Numbers, WeightsThatAreNotFiniteAreNotMultipliedByPadding) {
  int plans = 0;
  for (const char* text : {"n1h9c8k8r3pad1", "n1h12c3k8r3pad1", "n1h12c1k8r5pad2",
                           "n1h12c16k16r3pad1groups16", "n1h12c16k16r3pad1groups4",
                           "n1h16c32k4r3pad1", "n1h12c32k32r3pad1", "n1h12c8k8r3pad1+strict"}) {
    const Stage stage = parse_stage(text);
    for (const char* kernel :
         {"", "direct", "winograd2", "winograd4", "tap_pairs", "first", "first_winograd2",
          "few_filters", "depthwise", "grouped", "general"}) {
      for (const float value :
           {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        for (const Index place : {Index{0}, (stage.r * stage.s - 1) * (stage.c / stage.groups)}) {
          Tensor w(DType::f32, w_shape(stage));
          for (Index i = 0; i < w.elements(); ++i)
            w.data<float>()[i] = 0.3F * static_cast<float>(i % 7) - 1;
          w.data<float>()[place] = value;  // the first tap, or the last
          PlanOptions options = plain();
          options.kernel = kernel;
          try {
            const Plan plan(stage, w, options);
            expect_skipped(plan, w, std::string(text) + " by " + plan.kernel());
            ++plans;
          } catch (const Error&) {  // the kernel does not serve the stage
          }
        }
      }
    }
  }
  EXPECT_GT(plans, 60);
}

}  // namespace
}  // namespace convoy
