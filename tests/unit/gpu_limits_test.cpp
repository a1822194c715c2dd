// Sizes at, just under and just over what the GPU's families count in 32 bits. The index functions
// of the kernels, called on the host at the ends of such a run, give what wide arithmetic gives;
// what is refused at one size more would not. Needs no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "cuda/any/depthwise_thread.hpp"
#include "cuda/any/few_filters_layout.hpp"
#include "cuda/any/fma_thread.hpp"
#include "cuda/known_gpus.hpp"
#include "cuda/sm80/window_iterators.hpp"
#include "cuda/sm80/window_thread.hpp"
#include "cuda/sm90/few_thread.hpp"
#include "cuda/sm90/first_layout.hpp"
#include "cuda/sm90/halo_thread.hpp"
#include "cuda/sm90/pair_tile.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "cuda/wrap/winograd_thread.hpp"
#include "verify/random.hpp"

namespace convoy::cuda {
namespace {

using verify::Random;
using Wide = Index;  // no product here reaches 2^63

Machine machine() {
  return machine_of(h200());
}

/// One family: what it refuses, and whether every index of a run of a stage that it takes is right.
struct Family {
  const char* name;
  std::function<std::vector<std::string>(const Stage&)> refusals;
  std::function<void(const Stage&, Random&)> check;
};

bool fits_int(Wide value) {
  return value >= -(Wide{1} << 31) && value < (Wide{1} << 31);
}
#define EXPECT_INT(value) \
  EXPECT_TRUE(fits_int(value)) << #value << " = " << static_cast<double>(value)

/// Numbers below `count`: the first, the last, and some between.
std::vector<Index> some(Index count, Random& random) {
  std::vector<Index> numbers{0, count / 2, count - 1};
  for (int i = 0; i < 20; ++i)
    numbers.push_back(
        std::min(count - 1, static_cast<Index>(random.uniform() * static_cast<double>(count))));
  return numbers;
}

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

void check_halo(const Stage& stage, Random& random) {
  using namespace sm90;
  const Shapes shapes = shapes_of(stage);
  const std::vector<HaloTile> tiles = halo_tiles(stage, h200());
  ASSERT_FALSE(tiles.empty());
  for (std::size_t i = 0; i < tiles.size(); i += 1 + tiles.size() / 8) {
    const HaloTile& tile = tiles[i];
    SCOPED_TRACE(tile.name());
    const HaloLayout l = halo_layout(stage, tile, h200());
    const Wide turns = stage.act.is_neuron() ? stage.t : 1;
    const Wide places = Wide{l.k_blocks} * l.tiles_x * l.tiles_y * l.tiles_n;
    const int numbered = halo_tiles_of(stage, tile, l, stage.n);
    EXPECT_GE(numbered, places);
    EXPECT_INT(places * turns + Wide{2} * l.grid * 2 * turns);
    const Divisor by_k(l.k_blocks), by_x = halo_across(l), by_y(l.tiles_y);
    for (const Index number : some(static_cast<Index>(places), random)) {
      const Place at = halo_place(l, by_k, by_x, by_y, static_cast<int>(number));
      EXPECT_EQ(at.k, Wide{number % l.k_blocks} * l.cta_channels);
      const Wide rest = number / l.k_blocks;
      EXPECT_EQ(at.x, rest % l.tiles_x * l.cta_w);
      EXPECT_EQ(at.y, rest / l.tiles_x % l.tiles_y * l.cta_h);
      EXPECT_EQ(at.n, rest / l.tiles_x / l.tiles_y * l.cta_n);
      // What TMA is asked for, with the tile's last pixels and images and the last step.
      const Wide step = turns - 1;
      EXPECT_INT((Wide{at.x} + 2 * l.cta_w) * l.step_w + l.first_w + 256 * 8);
      EXPECT_INT((Wide{at.y} + 2 * l.cta_h) * l.step_h + l.first_h + 256 * 8);
      EXPECT_INT(Wide{at.n} + l.cta_n + step * stage.n);
      if (tile.inner == Inner::line) {
        EXPECT_INT(Wide{at.x} + 2 * l.cta_w + step * stage.n * stage.h * stage.w);
      }
      EXPECT_INT(Wide{at.k} + 2 * l.cta_channels);
    }
    if (!stage.act.is_neuron()) continue;
    // A thread's membranes: [n,P,Q,K], as Membranes finds them (halo_neuron_membranes.cuh).
    const Wide line = tile.inner == Inner::line;
    const Wide cells_n = line ? 1 : stage.n, cells_y = line ? 1 : shapes.p,
               cells_x = line ? stage.n * stage.h * stage.w : shapes.q;
    EXPECT_INT(((cells_n - 1) * cells_y + cells_y - 1) * cells_x * stage.k + cells_x * stage.k);
    EXPECT_INT(cells_x * cells_y * stage.k);  // to the image beside
    const int first = membrane_at(static_cast<int>(cells_n - 1), static_cast<int>(cells_y - 1),
                                  static_cast<int>(cells_x - 1), static_cast<int>(cells_y),
                                  static_cast<int>(cells_x), static_cast<int>(stage.k),
                                  static_cast<int>(stage.k - 1));
    EXPECT_EQ(first, cells_n * cells_y * cells_x * stage.k - 1);
  }
}

void expect_legal_map(const TensorMapArgs& map) {
  for (int axis = 0; axis < map.rank; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    EXPECT_LE(map.size[a], std::uint64_t{1} << 31) << "TMA's coordinates have 32 bits";
    if (axis > 0) {
      EXPECT_LT(map.stride[a], std::uint64_t{1} << 40);
    }
  }
}
void check_halo_maps(const Stage& stage, Random& random) {
  check_halo(stage, random);
  for (const sm90::HaloTile& tile : {sm90::halo_tiles(stage, h200()).front()}) {
    const sm90::HaloLayout l = sm90::halo_layout(stage, tile, h200());
    expect_legal_map(sm90::halo_w_map(stage, tile, l));
    expect_legal_map(sm90::halo_y_map(stage, tile, stage.k));
    Stage of_x = stage;
    if (tile.time_steps == 1) of_x.n *= sm90::halo_inputs(stage);
    expect_legal_map(sm90::halo_x_map(of_x, tile, l, stage.c));
  }
}

// --------------------------------------------------------------------------------- few and first

void check_few(const Stage& stage, Random& random) {
  using namespace sm90;
  const FewLayout l = few_layout(stage, h200());
  const Divisor columns(l.tiles_x), rows(l.tiles_y);
  const Index tiles = few_tiles(stage, l);
  EXPECT_INT(Wide{tiles} + l.grid);
  for (const Index t : some(tiles, random)) {
    const Place at = few_place(l, columns, rows, static_cast<int>(t));
    if (l.flat) {
      EXPECT_EQ(at.x, Wide{t} * l.out_w);
      EXPECT_INT(Wide{t} * l.out_w + l.out_w);
      continue;
    }
    EXPECT_EQ(at.x, Wide{t % l.tiles_x} * l.out_w);
    EXPECT_EQ(at.y, Wide{t / l.tiles_x % l.tiles_y} * l.out_h);
    EXPECT_EQ(at.n, Wide{t / l.tiles_x / l.tiles_y});
    EXPECT_INT(Wide{at.x} + l.box_w);
    EXPECT_INT(Wide{at.y} + l.box_h);
  }
  expect_legal_map(few_x_map(stage, l, stage.c));
}

void check_first(const Stage& stage, Random& random) {
  using namespace sm90;
  const FirstLayout l = first_layout(stage, h200());
  const Wide runs = Wide{stage.n} * l.runs_x * l.runs_y;
  EXPECT_INT(runs + 4 * l.grid);
  const Divisor columns(l.runs_x), rows(l.runs_y);
  for (const Index t : some(static_cast<Index>(runs), random)) {
    const Place at = tile_place(static_cast<int>(t), columns, rows);
    EXPECT_EQ(at.x, Wide{t % l.runs_x});
    EXPECT_EQ(at.y, Wide{t / l.runs_x % l.runs_y});
    EXPECT_EQ(at.n, Wide{t / l.runs_x / l.runs_y});
    const Wide x = Wide{at.x} * l.run_pitch + Wide{l.run} * l.out_w;
    EXPECT_INT((x * 2 * stage.stride.w + 256) * stage.c);  // raw_column
  }
  expect_legal_map(first_y_map(stage, l, stage.k, false));
  if (l.raw) expect_legal_map(first_x_map(stage, l));
}

// -------------------------------------------------------------------------------------- window

void check_window(const Stage& stage, Random& random) {
  using namespace sm80;
  const Shapes shapes = shapes_of(stage);
  for (const WindowTile& tile : window_tiles(stage, machine())) {
    SCOPED_TRACE(tile.name());
    WindowSizes at = window_sizes(stage, tile);
    set_machine(at, stage, tile, machine());
    const int window = at.g.window;
    const Wide m = Wide{stage.n} * shapes.out_h * shapes.out_w * window * window;
    EXPECT_EQ(at.g.m, m);
    EXPECT_INT(m + tile.m);
    EXPECT_INT(Wide{at.m_tiles} * at.n_tiles);
    EXPECT_INT(Wide{at.chunks} * at.g.r * at.g.s);
    if (tile.box) {
      EXPECT_INT(Wide{at.box.count} * at.n_tiles);
      EXPECT_EQ(at.box.count, Wide{(stage.n - 1) / at.box.images + 1} * at.box.of_image.d);
      EXPECT_INT((Wide{stage.n} + at.box.images) * shapes.p * at.box.columns);
    }
    const Index bytes = static_cast<Index>(size_of(stage.dtype));
    at.g.channel_bytes = static_cast<int>(at.groups.channels * bytes);
    EXPECT_INT(Wide{at.groups.channels} * bytes + chunk_bytes);
    const Strides x = dense_x(stage, stage.n);
    at.g.set_distances(x.n * bytes, x.h * bytes, x.w * bytes);
    for (const Index row : some(static_cast<Index>(m), random)) {
      const math::ConvPixel<int> pixel = at.g.pixel_of(static_cast<int>(row));
      const Wide number = row / (window * window), inside = row % (window * window);
      const Wide q = number % shapes.out_w * window + inside % window,
                 p = number / shapes.out_w % shapes.out_h * window + inside / window,
                 n = number / shapes.out_w / shapes.out_h;
      EXPECT_TRUE(pixel.n == n && pixel.p == p && pixel.q == q) << row;
      EXPECT_EQ(at.g.row_of(pixel), row);
      const Optimized<1> first(at.g, static_cast<int>(row), 1, 0);
      const Wide h = p * stage.stride.h - stage.pad.top, w = q * stage.stride.w - stage.pad.left;
      EXPECT_EQ(Wide{first.get()}, ((n * stage.h + h) * stage.w + w) * stage.c * bytes);
    }
    if (!tile.box)
      for (const Index cta : some(Index{at.m_tiles} * at.n_tiles, random)) {
        const CtaPlace place = at.order.place(static_cast<int>(cta));
        EXPECT_TRUE(place.m >= 0 && place.m < at.m_tiles && place.n >= 0 && place.n < at.n_tiles);
        EXPECT_EQ(at.order.number(place, at.m_tiles), cta);
        EXPECT_INT(Wide{place.m} * tile.m + tile.m);
      }
  }
}

// -------------------------------------------------------------------- families of every GPU

void check_fma(const Stage& stage, Random& random) {
  const Shapes shapes = shapes_of(stage);
  for (const FmaTile& tile : fma_tiles(stage)) {
    const FmaSizes at = fma_sizes(stage, tile);
    const Wide window = at.rows.window;
    const Wide m = Wide{stage.n} * shapes.out_h * shapes.out_w * window * window;
    EXPECT_EQ(at.rows.m, m);
    EXPECT_INT(m + tile.m);
    EXPECT_INT(Wide{at.m_tiles} * at.n_tiles);
    EXPECT_INT(Wide{at.steps} * fma_depth + fma_depth);
    for (const Index block : some(Index{at.m_tiles} * at.n_tiles, random)) {
      const FmaCta cta(at, tile.m, tile.n, static_cast<int>(block));
      EXPECT_EQ(cta.m, Wide{block / at.n_tiles} * tile.m);
    }
    for (const Index row : some(static_cast<Index>(m), random)) {
      const math::ConvPixel<int> pixel = at.rows.pixel_of(static_cast<int>(row));
      EXPECT_EQ(pixel.n, Wide{row} / (window * window) / shapes.out_w / shapes.out_h);
      EXPECT_EQ(at.rows.row_of(pixel), row);
      FmaRow begin{};
      begin.begin_at(pixel, math::conv_rows<int>(stage), math::conv_columns<int>(stage),
                     dense_x(stage, stage.n));
      EXPECT_EQ(begin.h, Wide{pixel.p} * stage.stride.h - stage.pad.top);
      EXPECT_EQ(begin.w, Wide{pixel.q} * stage.stride.w - stage.pad.left);
      const Strides x = dense_x(stage, stage.n);
      EXPECT_EQ(Wide{begin.at}, Wide{pixel.n} * x.n + Wide{begin.h} * x.h + Wide{begin.w} * x.w);
    }
  }
}

void check_few_filters(const Stage& stage, Random& random) {
  const FewFiltersLayout l = few_filters_layout(stage);
  EXPECT_LT(Wide{l.all_strips()} + 512, Wide{1} << 32);
  for (const Index strip : some(l.all_strips(), random)) {
    const FewFiltersPlace at = few_filters_place(
        static_cast<unsigned>(strip), static_cast<unsigned>(l.p), static_cast<unsigned>(l.strips));
    const Wide column = strip / l.p;
    EXPECT_EQ(at.n, column / l.strips);
    EXPECT_EQ(at.p, Wide{strip % l.p});
    EXPECT_EQ(at.q, column % l.strips * few_filters_pixels);
    EXPECT_INT((Wide{at.q} + few_filters_pixels) * stage.stride.w + Wide{stage.s} * stage.dil.w);
  }
  EXPECT_INT(Wide{l.channels.blocks} * l.channels.of_block() + 128);
}

void check_depthwise(const Stage& stage, Random& random) {
  const int count = depthwise_channels(stage);
  for (const DepthwiseTile& tile : depthwise_tiles(stage)) {
    const DepthwiseLayout l = depthwise_layout(stage, tile);
    const DepthwiseWalk walk(l);
    const Wide of_image = Wide{l.channel_blocks} * l.column_blocks * l.row_blocks;
    EXPECT_INT(of_image * stage.n);
    for (const Index block : some(static_cast<Index>(of_image * stage.n), random)) {
      const int thread = l.lanes * l.across * l.down - 1;
      const DepthwisePlace at =
          depthwise_place(walk, thread, static_cast<int>(block), count, tile.rows, tile.columns);
      EXPECT_EQ(at.n, Wide{block} / of_image);
      EXPECT_EQ(at.channel, (Wide{block % l.channel_blocks} * l.lanes + l.lanes - 1) * count);
      const Wide rest = block / l.channel_blocks;
      EXPECT_EQ(at.q, (rest % l.column_blocks * l.across + l.across - 1) * tile.columns);
      EXPECT_EQ(at.p, (rest / l.column_blocks % l.row_blocks * l.down + l.down - 1) * tile.rows);
      EXPECT_INT((Wide{at.p} + tile.rows) * stage.stride.h + Wide{stage.r} * stage.dil.h);
      EXPECT_INT((Wide{at.q} + tile.columns) * stage.stride.w + Wide{stage.s} * stage.dil.w);
    }
  }
  EXPECT_INT(Wide{stage.r} * stage.s * stage.c - 1);
}

void check_winograd(const Stage& stage, Random& random) {
  const WinogradTiles tiles = winograd_tiles(stage);
  const Wide all = Wide{stage.n} * tiles.down * tiles.across;
  const Wide threads = all * std::max(stage.c, stage.k);
  EXPECT_INT(threads / winograd_threads + 1);
  for (const Index number : some(static_cast<Index>(all), random)) {
    const WinogradTile tile(tiles, number);
    EXPECT_EQ(Wide{tile.image}, Wide{number} / tiles.down / tiles.across);
    EXPECT_EQ(tile.p, Wide{number} / tiles.across % tiles.down * 4);
    EXPECT_EQ(tile.q, Wide{number} % tiles.across * 4);
  }
}

void check_fire(const Stage& stage, Random&) {
  const Shapes shapes = shapes_of(stage);
  // Parts are at most as many as membranes, and threads of the last CTA have a number too.
  EXPECT_INT(Wide{stage.n} * shapes.p * shapes.q * stage.k + 128);
  EXPECT_INT(Wide{stage.n} * stage.t);
}

std::vector<Family> families() {
  const auto of_gpu = [](auto refusals) {
    return [refusals](const Stage& stage) { return refusals(stage, h200()); };
  };
  return {
      {"halo",
       [](const Stage& stage) {
         auto why = sm90::halo_refusals(stage, h200());
         if (why.empty() && !sm90::halo_serves(stage, h200())) why.emplace_back("no tile");
         return why;
       },
       check_halo_maps},
      {"few", of_gpu(sm90::few_refusals), check_few},
      {"first", of_gpu(sm90::first_refusals), check_first},
      {"window", [](const Stage& stage) { return sm80::window_refusals(stage, machine()); },
       check_window},
      {"fma", fma_refusals, check_fma},
      {"few_filters", few_filters_refusals, check_few_filters},
      {"depthwise", depthwise_refusals, check_depthwise},
      {"winograd", winograd_refusals, check_winograd},
      {"fire", refusals_of_fire, check_fire},
  };
}

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
