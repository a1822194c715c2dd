// Sizes at, just under and just over what the GPU's families count in 32 bits. The index functions
// of the kernels, called on the host at the ends of such a run, give what wide arithmetic gives;
// what is refused at one size more would not. Needs no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "cuda/known_gpus.hpp"
#include "cuda/sm90/halo_thread.hpp"
#include "cuda/sm90/pair_tile.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "gpu_limits_families.hpp"
#include "verify/random.hpp"

namespace convoy::cuda {
namespace {

using verify::Random;

// ------------------------------------------------------------------------------------ divisors

TEST(GpuLimits, TilesThatAreCountableAreDividedExactly) {
  Random random(3);
  int taken = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto axis = [&] {
      return random.pick<Index>({1, 2, 3, 7, 100, 1000, 40000, 65535, 65536, 65537, 1 << 20}) +
             random.between(0, 2);
    };
    const Index x = axis(), y = random.chance(0.5) ? 1 : axis(), k = random.chance(0.5) ? 1 : 8;
    // As many in the rest as there may be, and one more.
    Index rest = 0;
    for (Index step = Index{1} << 31; step > 0; step /= 2)
      if (countable({k, x, y}, rest + step)) rest += step;
    if (rest == 0) continue;
    ++taken;
    ASSERT_TRUE(countable({k, x, y}, rest) && !countable({k, x, y}, rest + 1));
    const Divisor by_k(static_cast<int>(k)), by_x(static_cast<int>(x)), by_y(static_cast<int>(y));
    for (const Index number : some(k * x * y * rest + last_step, random)) {
      int t = static_cast<int>(number);
      ASSERT_EQ(by_k.reduce(t), number % k) << number << ' ' << k;
      const sm90::Place at = sm90::tile_place(t, by_x, by_y);
      ASSERT_EQ(at.x, number / k % x) << number << ' ' << x;
      ASSERT_EQ(at.y, number / k / x % y) << number << ' ' << y;
      ASSERT_EQ(at.n, number / k / x / y) << number;
    }
  }
  EXPECT_GT(taken, 5000);
}

// ---------------------------------------------------------------------------------------- halo

/// A stage of one image that a family may take.
Stage draw(const std::string& family, Random& random) {
  Stage s;
  s.n = 1;
  s.h = random.pick<Index>({1, 2, 3, 5, 8, 14, 33, 56, 224});
  s.w = random.chance(0.7) ? s.h : random.pick<Index>({1, 4, 7, 64, 1000});
  s.r = s.s = random.pick<Index>({1, 1, 3, 5});
  if (random.chance(0.7)) s.pad = Padding(s.r / 2);
  if (random.chance(0.3)) s.stride = Extent(2);
  s.dtype = DType::f16;
  s.c = 8 * random.pick<Index>({1, 2, 8, 24, 128}), s.k = 8 * random.pick<Index>({1, 4, 8, 64});
  s.act = random.pick({no_act, relu});
  if (random.chance(0.3)) s.pool = max_pool(2);
  if (family == "halo" && random.chance(0.5)) {
    s.act = lif(2, 1);
    s.t = random.pick<Index>({1, 2, 4, 5});
    s.hold = random.chance(0.2);
  }
  if (family == "fire") s.act = integrate_fire(1), s.t = random.pick<Index>({1, 3, 100});
  if (family == "few") s.k = 1 + random.between(0, 3), s.stride = Extent(1);
  if (family == "first") {
    s.c = 1 + random.between(0, 3);
    if (random.chance(0.3)) s.dtype = DType::u8, s.norm = true;
    if (s.pool && random.chance(0.5)) s.pool = max_pool(3, 2, 1);
  }
  if (family == "window" && random.chance(0.4)) s.groups = random.pick<Index>({2, 4, 8});
  if (family == "fma" || family == "few_filters" || family == "winograd") s.dtype = DType::f32;
  if (family == "fma" && random.chance(0.3)) s.layout = Layout::nchw;
  if (family == "few_filters") s.k = 1 + random.between(0, 7), s.pool.reset(), s.c = 16 * s.c;
  if (family == "depthwise") s.k = s.groups = s.c;
  if (family == "winograd") s.r = s.s = 3, s.c = 96, s.stride = Extent(1);
  return s.normalised();
}

/// The most images that the family takes; 0: none.
Index most_images(const Family& family, Stage stage) {
  const auto takes = [&](Index n) {
    stage.n = n;
    return problems(stage).empty() && family.refusals(stage).empty();
  };
  if (!takes(1)) return 0;
  Index most = 1, refused = Index{1} << 32;
  while (refused - most > 1) {
    const Index n = most + (refused - most) / 2;
    (takes(n) ? most : refused) = n;
  }
  return most;
}

// The reason why a family takes no image more is a number of its own, and below it nothing wraps.
TEST(GpuLimits, NothingWrapsBelowThem) {
  Random random(11);
  for (const Family& family : families()) {
    int taken = 0;
    std::map<std::string, int> why;
    for (int i = 0; i < 60; ++i) {
      Stage stage = draw(family.name, random);
      if (!problems(stage).empty()) continue;
      const Index most = most_images(family, stage);
      if (most == 0) continue;
      ++taken;
      for (const Index n : {most, most - 1, most - 1000, most / 2, most / 3}) {
        stage.n = n;
        // Fewer images are never refused where more are taken.
        if (n < 1) continue;
        SCOPED_TRACE(testing::Message() << family.name << ": " << to_text(stage));
        const auto refused = family.refusals(stage);
        EXPECT_TRUE(refused.empty()) << refused.front();
        if (refused.empty()) family.check(stage, random);
        ASSERT_FALSE(testing::Test::HasFailure());
      }
      stage.n = most + 1;
      if (problems(stage).empty()) ++why[family.refusals(stage).front().substr(0, 12)];
    }
    EXPECT_GE(taken, 20) << family.name;
    for (const auto& [reason, count] : why)
      std::printf("%s: %d times \"%s...\"\n", family.name, count, reason.c_str());
  }
}

// Its membranes were found by 32 bits and nothing bounded their number.
TEST(GpuLimits, HaloRefusesMoreMembranesThanItCounts) {
  const char* text = "f16:n64h256c64k512r3pad1+bias+lif(2,1)+t4+max2";
  Stage stage = parse_stage(text);
  stage.n = 32;  // 2^30
  EXPECT_TRUE(sm90::halo_refusals(stage, h200()).empty());
  for (const Index n : {33, 64, 65, 66}) {
    stage.n = n;
    const auto why = sm90::halo_refusals(stage, h200());
    ASSERT_EQ(why.size(), 1U) << n;
    EXPECT_EQ(why.front(),
              "membranes = " + std::to_string(n * 256 * 256 * 512) + ", at most 2^30 fit");
  }
}

// What a driver does not tell is an estimate and a warning, never a 0 to divide by.
TEST(GpuFacts, WhatTheDriverDoesNotTellIsEstimated) {
  EXPECT_TRUE(machine_of(h200()).warning.empty());
  for (const int capability : {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121, 130}) {
    DeviceFacts facts = h200();
    facts.major = capability / 10, facts.minor = capability % 10;
    for (const double none : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
      facts.memory_bandwidth = none;
      facts.clock = h200().clock;
      Machine machine = machine_of(facts);
      EXPECT_TRUE(std::isfinite(machine.memory_bandwidth) && machine.memory_bandwidth > 1e9);
      EXPECT_NE(machine.warning.find("speed of its memory"), std::string::npos);
      facts.clock = none;
      machine = machine_of(facts);
      EXPECT_TRUE(std::isfinite(machine.peak_flops) && machine.peak_flops > 1e9);
      EXPECT_TRUE(std::isfinite(machine.tensor_flops) && machine.tensor_flops > 1e9);
      EXPECT_NE(machine.warning.find("clock"), std::string::npos);
    }
  }
}

// Each of these batches was refused for the number of its images, along which no tile number is
// divided, or for the length of a line, along which none needs to be.
TEST(GpuLimits, TakeLargeBatchesAtOnce) {
  for (const auto& [family, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"first", "f16:n15000h224c3k64r7stride2pad3+bias+relu+max3s2p1"},
           {"first", "u8:n15000h224c3k32r3stride2pad1+norm+bias+relu"},
           {"depthwise", "f16:n11000h56c64k64r3pad1groups64"},
           {"halo", "f16:n20000h56c64k64r1"},
           {"few", "f16:n1000h224c64k21r1"}}) {
    for (const Family& one : families()) {
      if (std::string_view(one.name) != family) continue;
      Random random(1);
      const Stage stage = parse_stage(text);
      SCOPED_TRACE(text);
      const auto why = one.refusals(stage);
      EXPECT_TRUE(why.empty()) << why.front();
      if (why.empty()) one.check(stage, random);
    }
  }
}

}  // namespace
}  // namespace convoy::cuda
