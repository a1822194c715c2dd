#include "verify/non_finite.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "math/half.hpp"
#include "verify/error_bound.hpp"

namespace convoy::verify {

using reference::Oracle;
using reference::Outputs;
using reference::Sum;

namespace {

// The stage with zero taps around its filters' rows: where a kernel that computes them may give
// NaN.
Outputs with_zero_taps(const Stage& stage, const Inputs& inputs, Threads& threads) {
  constexpr Index before = 1, after = 3;
  Stage wide = stage;
  wide.s += before + after;
  wide.pad.left += before;
  wide.pad.right += after;
  Tensor weights(DType::f32, w_shape(wide));
  const Index filter_row = stage.s * stage.c / stage.groups,
              wide_row = wide.s * stage.c / stage.groups;
  for (Index row = 0; row < stage.k * stage.r; ++row)
    std::copy_n(inputs.weights.data<float>() + row * filter_row, filter_row,
                weights.data<float>() + row * wide_row + before * stage.c / stage.groups);
  return Oracle(wide, weights, inputs.operands(), Sum::exact).all(threads);
}

}  // namespace

std::vector<std::string> check_non_finite(const Stage& given, std::uint64_t seed,
                                          const Check& check, Device device, Threads& threads,
                                          Tally& tally, Index part, Index parts) {
  const Stage stage = reference::for_device(given, device.kind);
  Inputs inputs = draw_inputs(stage, Data::normal, seed).value();
  PlanOptions options;
  options.device = device;
  options.kernel = check.kernel->name();
  options.tile = check.tile.name;
  options.use_tuning = false;
  Plan plan(stage, inputs.weights, options);
  Guard guard(device);
  Stage nhwc = stage;
  nhwc.layout = Layout::nhwc;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<std::string> failures;
  Index more = 0;
  // Large, but finite in the stage's types; its products are not, with f16.
  const bool f16 = stage.dtype == DType::f16 || stage.output_dtype() == DType::f16;
  const float large = f16 ? 6e4F : 1e37F;
  const double of_output = stage.output_dtype() == DType::f32   ? 1e-5
                           : stage.output_dtype() == DType::f16 ? 1e-3
                                                                : 8e-3;
  const double rounding = std::max(of_output, own_error * check.kernel->facts().sum_roundoff);
  // As GPUs' arithmetic makes it: whoever rounds bits by addition makes a number of it.
  const auto nan = std::bit_cast<float>(0x7fffffffU);
  for (const float special : {nan, infinity, -infinity, large})
    for (Index h = 3; h < std::min<Index>(9, stage.h); ++h)
      for (Index w = 3; w < std::min<Index>(9, stage.w); ++w) {
        if ((h + 5 * w) % parts != part) continue;
        const Index at = (h * stage.w + w) * stage.c + (h + w) % stage.c;
        const float before = math::load(stage.dtype, inputs.x.view().data, at);
        math::store(stage.dtype, inputs.x.view().data, at, special);
        const Operands operands = inputs.operands();
        Outputs want = Oracle(stage, inputs.weights, operands, Sum::exact).all(threads);
        const Result got = guard.run(plan, inputs, Views::dense);
        ++tally.runs;
        tally.outputs += static_cast<Index>(got.y.size());
        if (!check.kernel->facts().contains_non_finite) {
          const Outputs wide = with_zero_taps(stage, inputs, threads);
          for (std::size_t i = 0; i < got.y.size(); ++i)
            if (std::isnan(got.y[i]) && std::isnan(wide.y[i])) want.y[i] = wide.y[i];
        }
        // What is not exact may err in proportion to the largest sum, which a clip can hide.
        const double most =
            std::max({1.0, largest(want.y), check.kernel->exact() ? 0.0 : largest(want.pre)});
        const std::string why =
            got.error.empty() ? compare_close("y", got.y, want.y, rounding * most, y_shape(nhwc))
                              : got.error;
        if (!why.empty() && failures.empty())
          failures.push_back(
              fmt::format("{} at x[0,{},{},{}]: {}", special, h, w, (h + w) % stage.c, why));
        else if (!why.empty())
          ++more;
        math::store(stage.dtype, inputs.x.view().data, at, before);
      }
  if (more > 0) failures.back() += fmt::format(" (and at {} more places and values)", more);
  return failures;
}

}  // namespace convoy::verify
