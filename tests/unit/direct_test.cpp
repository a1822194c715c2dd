// The direct families: that kernels which name the same arithmetic give the same bits as `general`,
// for every tile, and that no result depends on what surrounds it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/kernel.hpp"
#include "cpu/direct/direct_prepared.hpp"
#include "cpu/families.hpp"

namespace convoy {
namespace {

Strides dense(Index h, Index w, Index c) {
  return {0, h * w * c, w * c, c, 1};
}

struct Problem {
  Stage stage;
  Shapes shapes;
  std::vector<float> x, w, bias, scale, shift;
  std::vector<std::uint8_t> bytes;

  explicit Problem(const std::string& text) : stage(parse_stage(text)), shapes(shapes_of(stage)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& v, Index count) {
      v.resize(static_cast<std::size_t>(count));
      for (float& value : v) value = normal(random);
    };
    fill(x, shapes.x_elements);
    fill(w, shapes.w_elements);
    fill(bias, stage.k);
    fill(scale, stage.c);
    fill(shift, stage.c);
    for (Index i = 0; i < shapes.x_elements; ++i)
      bytes.push_back(static_cast<std::uint8_t>(random()));
  }

  // y for the first n images; scratch starts as NaN, and so does y.
  std::vector<float> run(const Kernel& kernel, const Tile& tile, int threads, Index n) const {
    return run(kernel, tile, cpu_machine(threads), n);
  }
  std::vector<float> run(const Kernel& kernel, const Tile& tile, const Machine& machine,
                         Index n) const {
    const auto prepared = kernel.prepare(stage, tile, machine);
    set_weights(*prepared, w.data());
    Buffer<std::byte> workspace(prepared->workspace_bytes());
    std::memset(workspace.data(), 0xff, workspace.size());
    std::vector<float> y(static_cast<std::size_t>(shapes.y_elements / stage.n * n),
                         std::numeric_limits<float>::quiet_NaN());
    Threads pool(machine.threads);
    RunArgs args;
    args.n = n;
    args.x = stage.dtype == DType::u8 ? static_cast<const void*>(bytes.data()) : x.data();
    args.x_stride = dense(stage.h, stage.w, stage.c);
    if (stage.bias) args.bias = bias.data();
    if (stage.norm) {
      args.norm_scale = scale.data();
      args.norm_shift = shift.data();
    }
    args.y = y.data();
    args.y_stride = dense(shapes.out_h, shapes.out_w, stage.k);
    args.workspace = workspace.data();
    args.threads = &pool;
    EXPECT_TRUE(prepared->run(args).ok());
    return y;
  }
};

// The first element that differs, NaN equal to NaN; -1 for none.
Index first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) return static_cast<Index>(i);
  return -1;
}

// Of those kernels that run the stage: sequential ones equal `general` bit for bit; every one gives
// the same bits for each tile, with two threads, and for fewer images.
void check(const Problem& problem) {
  const Machine machine = cpu_machine(1);
  const std::vector<float> general = problem.run(
      cpu::general(), cpu::general().tiles(problem.stage, machine)[0], 1, problem.stage.n);
  int ran = 0;
  for (const Kernel* kernel :
       {&cpu::direct(), &cpu::first(), &cpu::first_winograd2(), &cpu::tap_pairs(),
        &cpu::few_filters(), &cpu::depthwise(), &cpu::grouped()}) {
    if (!kernel->refusals(problem.stage, machine).empty()) continue;
    ++ran;
    std::vector<float> expected;
    if (kernel->arithmetic() == cpu::general().arithmetic()) expected = general;
    for (const Tile& tile : kernel->tiles(problem.stage, machine)) {
      SCOPED_TRACE(to_text(problem.stage) + " " + std::string(kernel->name()) + " " + tile.name);
      const std::vector<float> y = problem.run(*kernel, tile, 1, problem.stage.n);
      if (expected.empty()) expected = y;
      EXPECT_EQ(first_difference(y, expected), -1);
      EXPECT_EQ(first_difference(problem.run(*kernel, tile, 2, problem.stage.n), expected), -1);
      const std::vector<float> one = problem.run(*kernel, tile, 2, 1);
      EXPECT_EQ(first_difference(one, {expected.begin(),
                                       expected.begin() + static_cast<std::ptrdiff_t>(one.size())}),
                -1);
    }
  }
  EXPECT_GT(ran, 0);
}

// How a run is cut into tasks depends on threads and on L2; its bits do not.
// The stages are met in bands of rows, of pixels that begin and end within rows, and of whole
// images.
TEST(DirectTasks, BitsDoNotDependOnHowARunIsCut) {
  const Kernel& kernel = cpu::direct();
  if (!kernel.refusals(parse_stage("n1h8c16k16r1"), cpu_machine(1)).empty())
    GTEST_SKIP() << "no vectors";
  int by_rows = 0, by_pixels = 0, by_images = 0;
  for (const char* text :
       {"n1h14c40k48r3stride2pad1+bias", "n5h13c40k48r3stride2pad1+relu", "n7h5w9c24k70r1+bias",
        "n3h9w7c20k40r5pad2", "n4h7c16k33r3pad1+bias+max2"}) {
    const Problem problem(text);
    const Tile tile = kernel.tiles(problem.stage, cpu_machine(1)).front();
    const std::vector<float> expected = problem.run(
        cpu::general(), cpu::general().tiles(problem.stage, cpu_machine(1))[0], 1, problem.stage.n);
    for (const std::size_t cache : {24 << 10, 40 << 10, 64 << 10, 128 << 10, 512 << 10})
      for (int threads = 1; threads <= 5; ++threads) {
        Machine machine = cpu_machine(threads);
        machine.l2_bytes = cache;
        const cpu::DirectPrepared bands(problem.stage, machine, tile.a);
        const cpu::DirectPrepared::Cut cut = bands.cut(problem.stage.n);
        // That of all images is kept; fewer get one of their own.
        EXPECT_LE(bands.cut(1).bands, problem.shapes.out_h);
        ++(cut.by_pixels ? by_pixels : cut.by_images ? by_images : by_rows);
        SCOPED_TRACE(testing::Message() << text << ", " << threads << " threads, a cache of "
                                        << cache << " bytes, tasks of " << cut.rows << " rows");
        EXPECT_EQ(first_difference(problem.run(kernel, tile, machine, problem.stage.n), expected),
                  -1);
      }
  }
  EXPECT_GT(by_rows, 0);
  EXPECT_GT(by_pixels, 0);
  EXPECT_GT(by_images, 0);
}

// Tiles of two rows are for inputs that come from L2: whether it is so here is no matter of the
// bits. The channels are few enough for one part of them beside either cache.
TEST(FewFilters, TilesOfTwoRowsGiveTheBitsOfOne) {
  const Kernel& kernel = cpu::few_filters();
  if (!kernel.refusals(parse_stage("n1h8c16k3r3"), cpu_machine(1)).empty())
    GTEST_SKIP() << "no vectors";
  for (const char* text :
       {"n2h9w13c40k3r3pad1+bias+relu+max2", "n1h8w4c64k1r3pad1", "n2h7w5c64k1r3pad2x0x1x3+relu",
        "n1h11w30c56k2r3+bias+max3s2p1", "n1h2w9c40k3r3pad1", "n2h10w17c30k4r3pad1+leaky(0.1)",
        "n1h9w12c20k2r5pad2+bias"})
    for (const bool finite : {true, false}) {
      Problem problem(text);
      if (!finite) problem.w[problem.w.size() / 2] = std::numeric_limits<float>::infinity();
      const Tile tile = kernel.tiles(problem.stage, cpu_machine(1)).front();
      const auto run = [&](std::size_t l1_bytes, int threads) {
        Machine machine = cpu_machine(threads);
        machine.l1_bytes = l1_bytes;
        return problem.run(kernel, tile, machine, problem.stage.n);
      };
      const std::vector<float> one_row = run(1 << 20, 1);
      for (int threads = 1; threads <= 3; ++threads)
        EXPECT_EQ(first_difference(run(6 << 10, threads), one_row), -1)
            << text << ", " << threads << " threads, weights " << (finite ? "finite" : "infinite");
    }
}

class Direct : public testing::TestWithParam<const char*> {};

TEST_P(Direct, BitsAreThoseOfTheArithmetic) {
  check(Problem(GetParam()));
}

TEST_P(Direct, InfiniteWeightsDoNotMeetThePadding) {
  Problem problem(GetParam());
  problem.w.front() = std::numeric_limits<float>::infinity();
  problem.w.back() = std::numeric_limits<float>::quiet_NaN();
  check(problem);
}

TEST_P(Direct, NaNAndHugeInputsReachWhatTheyTouchOnly) {
  Problem problem(GetParam());
  if (problem.stage.dtype != DType::f32) GTEST_SKIP() << "bytes hold neither";
  problem.x.front() = std::numeric_limits<float>::quiet_NaN();
  problem.x[problem.x.size() / 2] = 1e37F;
  problem.x.back() = -std::numeric_limits<float>::infinity();
  check(problem);
  // Whatever the arithmetic, a result is NaN or infinite exactly where that of `general` is.
  const Machine machine = cpu_machine(1);
  const std::vector<float> general = problem.run(
      cpu::general(), cpu::general().tiles(problem.stage, machine)[0], 1, problem.stage.n);
  for (const Kernel* kernel : {&cpu::first_winograd2(), &cpu::tap_pairs()}) {
    if (!kernel->refusals(problem.stage, machine).empty()) continue;
    const std::vector<float> y =
        problem.run(*kernel, kernel->tiles(problem.stage, machine)[0], 1, problem.stage.n);
    for (std::size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(std::isnan(y[i]), std::isnan(general[i])) << kernel->name() << ", " << i;
      EXPECT_EQ(std::isinf(y[i]), std::isinf(general[i])) << kernel->name() << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, Direct,
    testing::Values("n2h9w7c5k6r3pad1+bias+relu+max2", "n2h8c16k24r3pad1", "n3h7c32k40r1+bias+relu",
                    "n3h7w5c20k70r3stride2pad1+bias+relu6", "n2h12c8k16r5+bias+relu+max2",
                    "n3h28c1k9r5+bias+relu+max2", "n2h33c3k64r7stride2pad3+bias+relu+max3s2p1",
                    "n2h14c12k24r3pad2dil2groups3+bias+leaky(0.1)",
                    "u8:n2h16c3k20r3pad1+bias+norm+relu+max2",
                    "n2h11c6k10r3pad1+bias+clip(-0.5,2)+max3s2p1ceil",
                    "n2h11c6k10r3pad1+bias+max2ceil",
                    "n2h10w17c130k100r3stride2x1pad2x0x1x3+bias+max2s1", "n9h1c100k37r1+bias+relu",
                    "n2h13c64k64r1stride2+bias+relu", "n2h14c256k96r1+bias+relu+max2",
                    "n2h10c256k48r3pad1+bias+relu+max2", "n2h5c3k5r5pad4+max3s1p1d2",
                    "n2h33w90c1k33r3pad1x0x0x2+bias+leaky(0.1)", "n2h100c2k40r3+bias+relu6+max2",
                    "n2h31c4k70r3pad1+bias+clip(-0.5,2)", "n2h9w7c16k3r3pad1+bias+relu+max2",
                    "n2h8c40k8r3pad1+bias+leaky(0.1)", "n2h11c37k5r3stride2pad1+bias+relu6",
                    "n2h10c256k2r1+bias+max3s2p1", "n2h9w7c5k5r3pad1groups5+bias+relu",
                    "n2h8c40k40r3stride2pad1groups40+relu6", "n2h13c33k33r5pad2groups33+bias",
                    "n2h11c16k16r3stride2pad2dil2groups16", "n2h9w7c5k5r3pad1groups5+bias+max2",
                    "n3h11w9c40k40r3stride2pad1groups40+leaky(0.1)+max3s2p1ceil",
                    "n2h8w21c70k70r5pad2groups70+bias+relu+max3x2s1p1d2",
                    // Groups of few channels: in one vector, in two, more filters than channels.
                    "n2h9w11c10k10r3pad1groups5+bias+relu", "n3h7c24k48r3pad1groups12+relu6+max2",
                    "n2h10w9c42k42r3stride2pad1groups7+bias+max3s2p1", "n2h6c15k105r1groups15+bias",
                    "n2h13w5c33k22r5pad2groups11+leaky(0.1)", "n3h5c64k64r3pad2dil2groups8+bias",
                    "n2h7w12c60k36r2s3pad1x0x0x2groups12+bias+clip(-0.5,2)+max2s1p1",
                    "u8:n2h16c1k20r2s3pad1+bias+norm+relu",
                    // Wide rows, of which tiles read x itself or packed rows.
                    "n2h9w67c3k20r3stride2pad1+bias", "n2h8w80c3k70r5stride1x2pad2x0x1x3+bias+relu",
                    "n1h40w70c4k24r3pad1dil2groups2+bias+leaky(0.1)",
                    "n2h12w60c3k70r7stride2pad3+relu+max3s2p1", "n2h6w50c16k33r3stride2x1pad1+bias",
                    "u8:n2h6w60c3k20r3pad1+bias+norm+relu", "n2h3w60c3k16r5pad2",
                    "n2h6w100c2k48r3pad1x0x0x1+bias+relu", "n2h5w40c3k8r3+bias",
                    "n1h9w60c32k24r3pad2dil2", "n2h8w60c128k24r3stride2pad1+relu",
                    // 1x1 filters over contiguous pixels, and the few that tiles leave over.
                    "n2h20w31c20k24r1+bias+relu", "n3h13w40c40k70r1", "n1h1w500c9k16r1+relu6",
                    "n2h25c70k130r1groups2+bias",
                    // Pairs of taps: single taps, one row or column of results in the last tiles,
                    // windows that leave rows out, or lie in the padding.
                    "n2h7c9k20r5stride3pad2", "n1h31w13c3k33r11stride4pad2+bias+max3s2p1",
                    "n2h4w9c16k17r2pad1x0x0x1+leaky(-0.5)+max2", "n2h60w9c3k20r5+max2s3",
                    "n2h5w6c9k9r4s2pad3+max2s4p1d3", "u8:n2h12w14c3k40r6stride2pad1+norm+relu",
                    "n2h5c512k20r3stride2pad1",
                    // So large that they are pooled in steps.
                    "n2h90w60c3k70r3pad1+bias+relu+max3s2p1", "n1h120w60c3k64r3+max3s1p1d2",
                    "n1h100w70c2k64r3pad1+bias+max2s3", "n1h400w20c3k64r3pad1+relu+max3s2"));

}  // namespace
}  // namespace convoy
