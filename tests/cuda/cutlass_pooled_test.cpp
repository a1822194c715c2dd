// cutlass_pooled: where rows are pooled to, what is refused, and the four cases of the pipeline of
// two stages that it was planned for.
#include "teaching/cutlass_pooled/cutlass_pooled.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/fit/h200.hpp"
#include "gpu_case.hpp"
#include "math/half.hpp"
#include "reference/reference.hpp"
#include "teaching/cutlass_pooled/cutlass_pooled_map.hpp"
#include "teaching/families.hpp"

namespace convoy {
namespace {

using cuda::teaching::cutlass_pooled_missing;
using cuda::teaching::refuse_cutlass_pooled;
using cuda::teaching::served_by_cutlass_pooled;

TEST(CutlassPooled, RowsGoToTheWindowThatTheyLieIn) {
  struct Plane {
    int n, p, q;
  };
  for (const auto& [images, p_size, q_size] :
       {Plane{3, 2, 2}, Plane{2, 8, 8}, Plane{4, 6, 22}, Plane{2, 28, 14}, Plane{1, 2, 100}}) {
    int m = 0;
    for (int n = 0; n < images; ++n)
      for (int p = 0; p < p_size; ++p)
        for (int q = 0; q < q_size; ++q, ++m)
          ASSERT_EQ(cuda::teaching::pooled_row(m / q_size, m % q_size, q_size / 2),
                    (n * (p_size / 2) + p / 2) * (q_size / 2) + q / 2)
              << n << ", " << p << ", " << q << " of " << p_size << "x" << q_size;
  }
}

// What is said of the stage itself, with or without CUTLASS in the build.
Reasons refusals(const char* text, const cuda::DeviceFacts& device) {
  const Stage stage = parse_stage(text);
  Reasons why = unserved(stage, served_by_cutlass_pooled, DeviceKind::cuda);
  refuse_cutlass_pooled(stage, device, why);
  std::erase(why, cutlass_pooled_missing());
  return why;
}

TEST(CutlassPooled, EveryRefusalHasItsReason) {
  const struct {
    const char *stage, *why;
  } lines[] = {
      {"bf16:n1h8c16k32r3pad1+relu+max2", "x is bf16, expected f16"},
      {"f16:n1h8c16k32r3pad1out(f32)+relu+max2", "y is f32, expected f16"},
      {"f16:n1h8c12k32r3pad1+relu+max2", "C = 12 is no multiple of 8"},
      {"f16:n1h8c16k36r3pad1+relu+max2", "K = 36 is no multiple of 8"},
      {"f16:n1h8c16k32r3pad1groups2+relu+max2", "groups"},
      {"f16:n1h8c16k32r3pad1nchw+relu+max2", "the layout is nchw"},
      {"f16:n1h8c16k32r3pad1+norm+relu+max2", "norm"},
      {"f16:n1h8c16k32r3pad1+relu+max2+keep(idx)", "keep is idx"},
      {"f16:n1h8c16k32r3pad1+if(1)+max2", "the activation is if, expected relu"},
      {"f16:n1h8c16k32r3pad1+relu6+max2", "the activation is relu6, expected relu"},
      {"f16:n1h8c16k32r3pad1+relu", "the pool is none, expected max 2x2"},
      {"f16:n1h8c16k32r3pad1+relu+max3s2", "the pool is max 3x3 with stride 2x2, expected max 2x2"},
      {"f16:n1h9w8c16k32r3pad1+relu+max2", "P = 9 is odd"},
      {"f16:n1h8w9c16k32r3pad1+relu+max2", "Q = 9 is odd"},
      {"f16:n1h40c8k8r33+relu+max2", "a filter of 33x33"},
      {"f16:n65536h128c8k8r1+relu+max2", "more than 2^30 elements"},
  };
  for (const auto& line : lines) {
    const std::vector<std::string> why = refusals(line.stage, cuda::h200());
    EXPECT_TRUE(std::any_of(
        why.begin(), why.end(),
        [&](const std::string& reason) { return reason.find(line.why) != std::string::npos; }))
        << line.stage << ": expected a refusal with \"" << line.why << "\"";
  }
  const char* const fits = "f16:n1h8c16k32r3pad1+bias+relu+max2";
  EXPECT_EQ(refusals(fits, cuda::h200()), std::vector<std::string>{});
  cuda::DeviceFacts turing = cuda::h200();
  turing.major = 7, turing.minor = 5;
  EXPECT_EQ(refusals(fits, turing),
            std::vector<std::string>{"compute capability 7.5, the family needs 8.0 (cp.async)"});
  cuda::DeviceFacts narrow = cuda::h200();
  narrow.shared_bytes = 32 << 10;
  EXPECT_EQ(
      refusals(fits, narrow),
      std::vector<std::string>{"32768 bytes of shared memory, the smallest tile needs 36864"});
}

TEST(CutlassPooled, TilesThatDoNotFitAreLeftOut) {
  cuda::DeviceFacts device = cuda::h200();
  const Stage stage = parse_stage("f16:n1h8c16k32r3pad1+bias+relu+max2");
  const Kernel& kernel = cuda::teaching::cutlass_pooled();
  EXPECT_EQ(kernel.tiles(stage, cuda::machine_of(device)).size(), 2U);
  device.shared_bytes = 40'000;
  const std::vector<Tile> tiles = kernel.tiles(stage, cuda::machine_of(device));
  ASSERT_EQ(tiles.size(), 1U);
  EXPECT_EQ(tiles[0].name, "128x64");
}

class GpuCutlassPooled : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !cutlass_pooled_missing().empty())
      GTEST_SKIP() << "skipped: " << cutlass_pooled_missing();
  }
};

// Some windows against the oracle: the corners of the first and last image, and others between.
void expect_windows_of_oracle(const Stage& stage, const Tensor& w, const Tensor& x,
                              const Tensor& bias, const Tensor& y) {
  const Tensor x_host = x.to({}), bias_host = bias.to({}), y_host = y.to({});
  Operands operands;
  operands.x = x_host;
  operands.bias = bias_host;
  const reference::Oracle oracle(stage, w, operands, reference::Sum::exact);
  const Shapes& shapes = oracle.shapes();
  const Index windows = stage.n * shapes.out_h * shapes.out_w, most = 100;
  const Index step = std::max<Index>(1, windows / most) | 1;
  for (Index at = 0; at < windows;
       at = at + step < windows ? at + step : std::max(at + 1, windows - 1)) {
    const Index n = at / (shapes.out_h * shapes.out_w), i = at / shapes.out_w % shapes.out_h,
                j = at % shapes.out_w;
    const reference::Window window = oracle.window(n, i, j);
    for (Index k = 0; k < stage.k; ++k)
      ASSERT_EQ(static_cast<double>(math::load(DType::f16, y_host.view().data, at * stage.k + k)),
                window.y[static_cast<std::size_t>(k)])
          << "image " << n << ", window " << i << ", " << j << ", filter " << k;
  }
}

// On integers every order of summation gives the same bits, so that `general` judges all outputs of
// both stages, and the oracle some.
TEST_F(GpuCutlassPooled, TheFourCasesOfThePipeline) {
  const struct {
    const char *first, *second;
  } cases[] = {
      {"f16:n1h8c16k32r3pad1+bias+relu+max2", "f16:n1h4c32k16r1+bias+relu+max2"},
      {"f16:n4h32c64k128r3pad1+bias+relu+max2", "f16:n4h16c128k256r1+bias+relu+max2"},
      {"f16:n32h56c64k64r3pad1+bias+relu+max2", "f16:n32h28c64k256r1+bias+relu+max2"},
      {"f16:n32h56c64k128r3pad1+bias+relu+max2", "f16:n32h28c128k256r1+bias+relu+max2"},
      // 14 x 7 is what lies between: Q is odd, and the second stage is refused for it.
      {"f16:n2h28w14c64k64r3pad1+bias+relu+max2", "f16:n2h14w7c64k128r1+bias+relu+max2"},
  };
  for (const auto& [one, two] : cases) {
    SCOPED_TRACE(one);
    for (const char* const tile : {"128x64", "128x128"}) {
      SCOPED_TRACE(tile);
      GpuCase first(parse_stage(one), Values::integers, gpu0),
          second(parse_stage(two), Values::integers, gpu0);
      const Plan plan(first.stage, first.w, options_for(gpu0, "cutlass_pooled", tile)),
          judge(first.stage, first.w, options_for(gpu0, "general"));
      judge.run(first.operands()).or_throw();
      const std::vector<unsigned char> expected = first.outputs();
      first.poison();
      plan.run(first.operands()).or_throw();
      EXPECT_EQ(first.outputs(), expected);
      expect_windows_of_oracle(first.stage, first.w, first.x, first.bias, first.y);

      Operands after = second.operands();
      after.x = first.y;
      const Plan judge2(second.stage, second.w, options_for(gpu0, "general"));
      judge2.run(after).or_throw();
      const std::vector<unsigned char> expected2 = second.outputs();
      if (second.stage.w % 2 != 0) {
        EXPECT_THROW(Plan(second.stage, second.w, options_for(gpu0, "cutlass_pooled")), Error);
        continue;
      }
      second.poison();
      const Plan plan2(second.stage, second.w, options_for(gpu0, "cutlass_pooled", tile));
      plan2.run(after).or_throw();
      EXPECT_EQ(second.outputs(), expected2);
      expect_windows_of_oracle(second.stage, second.w, first.y, second.bias, second.y);
    }
  }
}

TEST_F(GpuCutlassPooled, BitsDoNotDependOnTileBatchOrRun) {
  GpuCase all(parse_stage("f16:n33h18w22c72k136r3pad1+bias+relu+max2"), Values::normal, gpu0);
  std::vector<unsigned char> expected;
  for (const char* const tile : {"128x64", "128x128"}) {
    const Plan plan(all.stage, all.w, options_for(gpu0, "cutlass_pooled", tile));
    for (int run = 0; run < 3; ++run) {
      all.poison();
      plan.run(all.operands()).or_throw();
      if (expected.empty()) expected = all.outputs();
      EXPECT_EQ(all.outputs(), expected) << tile << ", run " << run;
    }
  }
  expect_same_bits_of_fewer_images("f16:n9h14c64k64r3pad1+bias+relu+max2", "cutlass_pooled");
}

}  // namespace
}  // namespace convoy
