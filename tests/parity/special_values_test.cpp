// Zeros of both signs, NaN and infinities: which bits come out, and that they are the same whatever
// kernel of an arithmetic, tile, number of threads, batch or content of the workspace.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>

#include "cpu/families.hpp"
#include "plan/select.hpp"
#include "verify/draw.hpp"
#include "verify/non_finite.hpp"
#include "verify/parity.hpp"

namespace convoy::verify {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

float nan_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct Data {
  Tensor x, weights, bias;
};

Data draw(const Stage& stage, std::uint64_t seed) {
  Data data{Tensor(DType::f32, x_shape(stage)), Tensor(DType::f32, w_shape(stage)),
            Tensor(DType::f32, {stage.k})};
  Random random(seed);
  for (Tensor* tensor : {&data.x, &data.weights, &data.bias})
    for (Index i = 0; i < tensor->elements(); ++i)
      tensor->data<float>()[i] = static_cast<float>(random.normal());
  return data;
}

// y of the first `n` images, from a workspace whose every byte is `poison`.
std::vector<float> run(const Stage& stage, const Data& data, const Kernel& kernel, const Tile& tile,
                       int threads, Index n, int poison) {
  PlanOptions options;
  options.kernel = kernel.name();
  options.tile = tile.name;
  options.threads = threads;
  options.all_threads = true;
  options.use_tuning = false;
  const Plan plan(stage, data.weights, options);
  Stage some = stage;
  some.n = n;
  Tensor y(DType::f32, y_shape(some)),
      workspace(DType::u8, {static_cast<Index>(plan.workspace_bytes())});
  std::memset(y.data<char>(), 0x7f, y.bytes());
  std::memset(workspace.data<char>(), poison, workspace.bytes());
  Operands operands;
  operands.x = ConstTensorView(data.x.view().data, DType::f32, x_shape(some));
  if (stage.bias) operands.bias = data.bias;
  operands.y = y;
  operands.workspace = workspace.data<char>();
  plan.run(operands).or_throw();
  return {y.data<float>(), y.data<float>() + y.elements()};
}

std::string first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof a[i]) != 0) {
      std::uint32_t bits[2];
      std::memcpy(&bits[0], &a[i], 4);
      std::memcpy(&bits[1], &b[i], 4);
      char text[100];
      std::snprintf(text, sizeof text, "element %zu: %08x and %08x", i, bits[0], bits[1]);
      return text;
    }
  return {};
}

// Runs every kernel and tile in every way that may not matter; of each arithmetic one result.
std::map<std::string, std::vector<float>> same_bits(const std::string& text, const Data& data) {
  const Stage stage = parse_stage(text);
  std::map<std::string, std::vector<float>> results;
  const Machine machine = cpu_machine(1);
  for (const Kernel* kernel : fitting_kernels(stage, machine))
    for (const Tile& tile : kernel->tiles(stage, machine)) {
      const auto name = std::string(kernel->name()) + " " + tile.name;
      const std::vector<float> y = run(stage, data, *kernel, tile, 1, stage.n, 0);
      const auto [known, is_new] = results.try_emplace(std::string(kernel->arithmetic()), y);
      if (!is_new) {
        EXPECT_EQ(first_difference(known->second, y), "") << text << ", " << name;
      }
      EXPECT_EQ(first_difference(y, run(stage, data, *kernel, tile, 1, stage.n, 0xff)), "")
          << text << ", " << name << ": the workspace's content shows";
      for (const int threads : {2, 5})
        EXPECT_EQ(first_difference(y, run(stage, data, *kernel, tile, threads, stage.n, 0xff)), "")
            << text << ", " << name << ", " << threads << " threads";
      EXPECT_EQ(first_difference(y, run(stage, data, *kernel, tile, 1, 1, 0xff)), "")
          << text << ", " << name << ", one image";
    }
  return results;
}

constexpr const char* stages[] = {
    "n3h12c1k8r3pad1+leaky(0)+max2",          "n3h13c1k9r5pad2+bias+leaky(0.1)+max2",
    "n3h12c16k16r3pad1+leaky(0)+max3s2p1",    "n3h12c20k5r3pad1+leaky(0)+max2",
    "n3h12w30c5k24r3pad1+bias+leaky(0)",      "n3h12c64k16r3pad1+clip(-1,-0)+max2",
    "n3h12c3k16r3pad1+clip(-0,1)+max2",       "n3h12c1k8r3pad1+clip(-0,1)+max2",
    "n3h12c1k8r3pad1+bias+clip(-1,-0)+max2",  "n3h10c16k16r1+relu+max3s1p1",
    "n3h11w17c7k7r3groups7pad1+leaky(0)",     "n3h9c24k40r3stride2pad1+bias+relu",
    "n3h14c16k3r5pad2+bias+relu6+max2s1p1d2",
};

// Sums of exactly zero beside negative ones, of which leaky(0) would make -0.
TEST(SpecialValues, SignsOfZeroDoNotDependOnTheWay) {
  for (const char* text : stages) {
    const Stage stage = parse_stage(text);
    Data data = draw(stage, 3);
    Random random(7);
    for (Index i = 0; i < data.x.elements(); ++i)
      data.x.data<float>()[i] = static_cast<float>(random.between(-1, 1));
    for (Index i = 0; i < data.weights.elements(); ++i)
      data.weights.data<float>()[i] =
          random.chance(0.6) ? 0.0F : static_cast<float>(random.between(-1, 1));
    for (Index i = 0; i < stage.k; ++i)
      data.bias.data<float>()[i] = random.pick({-0.0F, 0.0F, -1.0F});
    same_bits(text, data);
  }
}

TEST(SpecialValues, BitsOfNaNDoNotDependOnTheWay) {
  for (const char* text : stages) {
    const Stage stage = parse_stage(text);
    Data data = draw(stage, 4);
    Random random(8);
    // Several in one sum, of both signs and other payloads, and infinities that make more.
    for (Index i = 0; i < data.x.elements(); ++i)
      if (random.chance(0.05))
        data.x.data<float>()[i] = random.pick({nan_of(0x7fc00001), nan_of(0xffc01234), inf, -inf});
    for (Index i = 0; i < stage.k; ++i)
      if (random.chance(0.2)) data.bias.data<float>()[i] = nan_of(0x7fc0beef);
    for (const auto& [arithmetic, y] : same_bits(text, data)) {
      Index found = 0;
      for (const float v : y) found += std::isnan(v);
      EXPECT_GT(found, 0) << text << ", " << arithmetic;
    }
  }
}

// Behind the last tile lie pixels that no tile begins at; with one lane a vector is less than one.
TEST(SpecialValues, AreMetInEveryChannelBehindTheLastTile) {
  for (const char* text : {"n1h8w10c3k7r3+bias+max2", "n1h8w7c4k5r3pad1"}) {
    const Stage stage = parse_stage(text);
    const Kernel& kernel = cpu::first_winograd2();
    Threads threads(1);
    Tally tally;
    const Tile tile = kernel.tiles(stage, cpu_machine(1)).front();
    EXPECT_EQ(check_non_finite(stage, 1, {stage, &kernel, tile}, {}, threads, tally),
              std::vector<std::string>{})
        << text;
  }
}

// leaky(0) makes NaN of -inf, whatever else a window holds.
TEST(SpecialValues, LeakyZeroOfMinusInfinityIsNaNInEveryWindow) {
  for (const char* text : {"n1h4c1k8r3pad1+leaky(0)+max2", "n1h8c3k16r3pad1+leaky(0)+max2",
                           "n1h8c64k16r3pad1+leaky(0)+max2", "n1h8c16k2r3pad1+leaky(0)+max2"}) {
    const Stage stage = parse_stage(text);
    Data data = draw(stage, 5);
    for (Index i = 0; i < data.weights.elements(); ++i) data.weights.data<float>()[i] = 1;
    data.x.data<float>()[(stage.w + 1) * stage.c] = -inf;
    for (const auto& [arithmetic, y] : same_bits(text, data))
      for (Index k = 0; k < stage.k; ++k)
        EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(k)])) << text << ", " << arithmetic;
  }
}

// Partial sums that overflow to one side, an infinity on the other: the sum is that infinity.
TEST(SpecialValues, AnInfinityOutlivesPartialSumsThatOverflow) {
  for (const char* text : {"n1h6c64k3r3pad1", "n1h6c40k1r3pad1+max2", "n1h9c600k2r1"}) {
    const Stage stage = parse_stage(text);
    for (const float sign : {1.0F, -1.0F}) {
      Data data = draw(stage, 6);
      for (Index i = 0; i < data.weights.elements(); ++i) data.weights.data<float>()[i] = 1;
      // Of the first channel: every other sum begins with it. The rest overflows the other way.
      for (Index i = 0; i < data.x.elements(); ++i)
        data.x.data<float>()[i] = i % stage.c == 0 ? sign * inf : -sign * 3e38F;
      for (const Kernel* kernel : fitting_kernels(stage, cpu_machine(1))) {
        const Tile tile = kernel->tiles(stage, cpu_machine(1)).front();
        for (const float v : run(stage, data, *kernel, tile, 1, 1, 0))
          ASSERT_EQ(v, sign * inf) << text << ", " << kernel->name();
      }
    }
  }
}

}  // namespace
}  // namespace convoy::verify
