// Winograd against the definition: integers exactly, values that are not finite, strides, and bits
// that do not depend on tiles, threads or the number of images.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/buffer.hpp"
#include "core/kernel.hpp"
#include "cpu/families.hpp"
#include "reference/reference.hpp"

namespace convoy {
namespace {

struct Case {
  Stage stage;
  Shapes shapes;
  std::vector<float> x, w, bias;

  explicit Case(const char* text, bool whole = true) : stage(parse_stage(text)) {
    shapes = shapes_of(stage);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, Index count, int span) {
      values.resize(static_cast<std::size_t>(count));
      for (float& v : values)
        v = whole ? static_cast<float>(static_cast<int>(random() % (2U * span + 1)) - span)
                  : normal(random);
    };
    fill(x, shapes.x_elements, 8);
    fill(w, shapes.w_elements, 4);
    fill(bias, stage.k, 4);
  }
  float& pixel(Index n, Index y, Index column, Index c) {
    return x[static_cast<std::size_t>(((n * stage.h + y) * stage.w + column) * stage.c + c)];
  }

  // y by the definition, in double.
  std::vector<double> expected() const {
    Operands operands;
    operands.x = ConstTensorView::of(x.data(), {stage.n, stage.h, stage.w, stage.c});
    if (stage.bias) operands.bias = ConstTensorView::of(bias.data(), {stage.k});
    const ConstTensorView weights = ConstTensorView::of(w.data(), {stage.k, 3, 3, stage.c});
    Threads threads(1);
    return reference::Oracle(stage, weights, operands, reference::Sum::real).all(threads).y;
  }

  // Runs the first n images; `gap` floats of NaN lie between pixels of x and of y. With `l2_bytes`
  // as if L2 had so many.
  std::vector<float> run(const Kernel& kernel, const Tile& tile, int threads, Index n = 0,
                         Index gap = 0, std::size_t l2_bytes = 0) const {
    if (n == 0) n = stage.n;
    Machine machine = cpu_machine(threads);
    if (l2_bytes > 0) machine.l2_bytes = l2_bytes;
    const auto prepared = kernel.prepare(stage, tile, machine);
    set_weights(*prepared, w.data());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Buffer<std::byte> workspace(prepared->workspace_bytes());
    std::memset(workspace.data(), 0xff, workspace.size());
    const Index from = stage.c + gap, to = stage.k + gap;
    std::vector<float> wide(static_cast<std::size_t>(shapes.x_elements / stage.c * from), nan);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto c = static_cast<std::size_t>(stage.c);
      wide[i / c * static_cast<std::size_t>(from) + i % c] = x[i];
    }
    const Index pixels = n * shapes.out_h * shapes.out_w;
    std::vector<float> y(static_cast<std::size_t>(pixels * to), nan);
    Threads pool(threads);
    RunArgs args;
    args.n = n;
    args.x = wide.data();
    args.x_stride = {0, stage.h * stage.w * from, stage.w * from, from, 1};
    args.bias = stage.bias ? bias.data() : nullptr;
    args.y = y.data();
    args.y_stride = {0, shapes.out_h * shapes.out_w * to, shapes.out_w * to, to, 1};
    args.workspace = workspace.data();
    args.threads = &pool;
    prepared->run(args).or_throw();
    std::vector<float> dense;
    for (Index i = 0; i < pixels; ++i)
      for (Index k = 0; k < to; ++k) {
        const float v = y[static_cast<std::size_t>(i * to + k)];
        if (k < stage.k)
          dense.push_back(v);
        else
          EXPECT_TRUE(std::isnan(v)) << "written between pixels";
      }
    return dense;
  }
};

const char* const awkward[] = {"n3h13w11c50k37r3pad1+bias+relu",
                               "n3h13w11c50k37r3pad1+bias+max2",
                               "n2h13w11c48k33r3pad1+relu+max2s2ceil",
                               "n1h5w4c49k1r3pad2x0x1x2+max2",
                               "n1h4w4c48k16r3",
                               "n2h9w14c67k70r3pad0x2x2x1+bias+max2s2ceil"};

const char* const awkward_stride2[] = {"n3h13w11c50k37r3stride2pad1+bias+relu",
                                       "n3h14w10c6k37r3stride2pad1+bias+max2",
                                       "n2h13w17c48k33r3stride2pad1+relu+max2s2ceil",
                                       "n1h5w4c49k1r3stride2pad2x0x1x2+max2",
                                       "n1h4w4c48k16r3stride2",
                                       "n2h9w14c67k70r3stride2pad0x2x2x1+bias+max2s2ceil"};

// U is made of the weights as a block passes by: C is at least 256, C x K at least 512 x 512.
const char* const deep = "n3h9w6c257k1021r3pad1+bias+relu";

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Winograd2, IsExactOnIntegers) {
  std::vector<const char*> texts(std::begin(awkward), std::end(awkward));
  texts.insert(texts.end(), std::begin(awkward_stride2), std::end(awkward_stride2));
  for (const char* text : texts) {
    const Case c(text);
    const std::vector<double> expected = c.expected();
    for (const Tile& tile : cpu::winograd2().tiles(c.stage, cpu_machine(2))) {
      const std::vector<float> y = c.run(cpu::winograd2(), tile, 2, 0, 3);
      ASSERT_EQ(y.size(), expected.size());
      for (std::size_t i = 0; i < y.size(); ++i)
        ASSERT_EQ(y[i], expected[i]) << text << " " << tile.name << " at " << i;
    }
  }
}

TEST(Winograd4, IsAsAccurateAsPlainFp32) {
  std::vector<const char*> texts(std::begin(awkward), std::end(awkward));
  texts.push_back(deep);
  for (const char* text : texts) {
    const Case c(text, false);
    const std::vector<double> expected = c.expected();
    const std::vector<float> y = c.run(cpu::winograd4(), {"tiles12", 12, 0}, 1);
    double error = 0, largest = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      error = std::max(error, std::abs(y[i] - expected[i]));
      largest = std::max(largest, std::abs(expected[i]));
      ASSERT_TRUE(std::isfinite(y[i])) << text << " at " << i;
    }
    EXPECT_LT(error / largest, 2e-6) << text;
  }
}

TEST(Winograd, BitsDoNotDependOnTilesThreadsOrImages) {
  const std::pair<const Kernel*, const char*> cases[] = {
      {&cpu::winograd2(), "n5h18w10c50k40r3pad1+bias+relu+max2"},
      {&cpu::winograd2(), "n5h18w10c50k40r3stride2pad1+bias+relu+max2"},
      {&cpu::winograd4(), "n5h18w10c50k40r3pad1+bias+relu+max2"},
      {&cpu::winograd4(), deep}};
  for (const auto& [kernel, text] : cases) {
    const Case c(text, false);
    const std::vector<Tile> tiles = kernel->tiles(c.stage, cpu_machine(1));
    const std::vector<float> y = c.run(*kernel, tiles[0], 1);
    for (const Tile& tile : tiles)
      for (const int threads : {1, 2, 3})
        EXPECT_TRUE(same_bits(y, c.run(*kernel, tile, threads))) << tile.name << " " << threads;
    for (const Tile& tile : tiles) {
      std::vector<float> one = c.run(*kernel, tile, 2, 1), first = y;
      first.resize(one.size());
      EXPECT_TRUE(same_bits(first, one)) << kernel->name() << " " << tile.name;
    }
  }
}

// Where the input does not fit into L2, a block asks for the next one's pixels, of which all may
// lie in the padding.
TEST(Winograd, WhatIsAskedForAheadTouchesNothing) {
  for (const char* text : {"n6h30w22c50k16r3pad1+bias+relu+max2", "n1h36w36c50k16r3pad60+bias",
                           "n2h31w30c50k16r3pad0x7x60x0+bias+max2"}) {
    const Case c(text, false);
    for (const Kernel* kernel : {&cpu::winograd2(), &cpu::winograd4()})
      for (const Tile& tile : kernel->tiles(c.stage, cpu_machine(1)))
        EXPECT_TRUE(same_bits(c.run(*kernel, tile, 1), c.run(*kernel, tile, 2, 0, 3, 400'000)))
            << text << " " << kernel->name() << " " << tile.name;
  }
}

// NaN and the infinities reach exactly the outputs that see them, at every position of a tile; 1e37
// overflows Winograd's sums but not the outputs.
TEST(Winograd, ValuesThatAreNotFiniteReachOnlyWhatSeesThem) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Kernel* kernel : {&cpu::winograd2(), &cpu::winograd4()})
    for (const char* text :
         {"n1h9w9c64k5r3pad1+bias", "n1h8w8c64k5r3pad1+relu+max2", "n1h9w9c48k5r3stride2pad1+bias"})
      for (const float value : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity})
        for (Index position = 0; position < 36; ++position) {
          Case c(text);
          if (!kernel->refusals(c.stage, cpu_machine(1)).empty()) continue;
          c.pixel(0, 1 + position / 6, 1 + position % 6, 17) = value;
          const std::vector<double> expected = c.expected();
          const std::vector<float> y = c.run(*kernel, {"tiles12", 12, 0}, 1);
          for (std::size_t i = 0; i < y.size(); ++i) {
            if (std::isnan(expected[i])) {
              ASSERT_TRUE(std::isnan(y[i])) << kernel->name() << " " << text << " at " << i;
            } else if (std::isinf(expected[i])) {
              ASSERT_EQ(y[i], expected[i]) << kernel->name() << " " << text << " at " << i;
            } else {
              ASSERT_NEAR(y[i], expected[i], 1e-2) << kernel->name() << " " << text << " at " << i;
            }
          }
        }
}

TEST(Winograd, SumsThatOverflowAreComputedDirectly) {
  for (const Kernel* kernel : {&cpu::winograd2(), &cpu::winograd4()}) {
    Case c("n1h8w8c48k3r3pad1");
    // The sums are at most 3e38; the factors of the transforms carry them past 3.4e38.
    for (float& v : c.w) v = 0;
    for (Index k = 0; k < 3; ++k)
      for (Index tap = 0; tap < 9; ++tap) c.w[static_cast<std::size_t>((k * 9 + tap) * 48)] = 1;
    for (float& v : c.x) v = 0;
    for (Index i = 0; i < 64; ++i)
      c.x[static_cast<std::size_t>(i * 48)] = (i / 8 + i) % 2 ? -3e38F : 3e38F;
    const std::vector<double> expected = c.expected();
    const std::vector<float> y = c.run(*kernel, {"tiles12", 12, 0}, 1);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (std::abs(expected[i]) < 3.4e38) {
        ASSERT_NEAR(y[i] / 3e38, expected[i] / 3e38, 1e-5) << kernel->name() << " at " << i;
      }
    }
  }
}

// A plan for one image of few tiles makes U in registers, larger blocks make it in rows.
TEST(Winograd4, BitsDoNotDependOnWhereTheFilterIsMade) {
  const Case more(deep, false);
  const std::vector<float> all = more.run(cpu::winograd4(), {"shared24", 24, 1}, 1);
  for (const int most : {1, 2, 3, 4, 5, 8, 9})
    for (const int shared : {0, 1})
      EXPECT_TRUE(same_bits(all, more.run(cpu::winograd4(), {"few", most, shared}, 2))) << most;
}

TEST(Winograd, RefusesWithEveryReason) {
  Machine machine;
  machine.isa = "avx2";
  const auto count = [&](const Kernel& kernel, const char* text) {
    return kernel.refusals(parse_stage(text), machine).size();
  };
  EXPECT_EQ(count(cpu::winograd4(), "n1h8c64k8r3pad1+bias+relu+max2"), 0U);
  EXPECT_EQ(count(cpu::winograd2(), "n1h8c4k8r3pad1+strict"), 0U);
  EXPECT_EQ(count(cpu::winograd4(), "n1h8c3k8r3pad1"), 1U);
  EXPECT_EQ(count(cpu::winograd2(), "n1h16c4k8r5stride2groups2nchw+max3"), 3U);
  EXPECT_EQ(count(cpu::winograd2(), "n1h16c4k8r3stride2x1pad1"), 1U);
  EXPECT_EQ(count(cpu::winograd4(), "n1h16c64k8r3pad1+max3s2p1"), 0U);
  EXPECT_EQ(count(cpu::winograd4(), "n1h32768c64k2r3pad1+max3s2p1"), 1U);
  EXPECT_EQ(count(cpu::winograd4(), "n1h16c64k8r3stride2pad1"), 1U);
  machine.isa = "scalar";
  EXPECT_EQ(count(cpu::winograd4(), "n1h8c64k8r3pad1+bias+relu+max2"), 1U);
  EXPECT_EQ(count(cpu::winograd2(), "n1h8c64k8r3pad1+strict"), 0U);
}

}  // namespace
}  // namespace convoy
