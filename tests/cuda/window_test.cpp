// The window family's index maps, checked on the host: what its iterators visit, and that rows,
// filters, groups and packed weights together make the convolution.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/fit/h200.hpp"
#include "cuda/sm80/window_iterators.hpp"
#include "cuda/sm80/window_tile.hpp"
#include "verify/draw.hpp"

namespace convoy::cuda::sm80 {
namespace {

Machine a_gpu(int capability) {
  Machine machine = machine_of(h200());
  machine.compute_capability = capability;
  return machine;
}

/// A stage that the family takes, of some pixels: any filter, stride, dilation, padding and groups.
Stage draw_fitting(verify::Random& random) {
  while (true) {
    Stage s;
    s.dtype = random.pick({DType::f16, DType::bf16, DType::f32});
    s.n = random.between(1, 3);
    s.h = random.between(1, 12), s.w = random.between(1, 12);
    s.r = random.between(1, 5), s.s = random.between(1, 5);
    s.stride = Extent(random.between(1, 3), random.between(1, 3));
    s.dil = Extent(random.between(1, 3), random.between(1, 3));
    for (Index* side : {&s.pad.top, &s.pad.left, &s.pad.bottom, &s.pad.right})
      *side = random.between(0, 4);
    s.groups = random.chance(0.5) ? random.between(1, 12) : 1;
    s.c = s.groups * random.between(1, random.chance(0.3) ? 70 : 12);
    s.k = s.groups * random.between(1, random.chance(0.3) ? 70 : 12);
    if (random.chance(0.5)) s.pool = max_pool(2);
    if (problems(s).empty() && window_refusals(s, a_gpu(80)).empty()) return s;
  }
}

/// x as it may lie: pixels further apart than they have channels.
WindowSizes laid_out(const Stage& stage, const WindowTile& tile, Index apart) {
  WindowSizes at = window_sizes(stage, tile);
  const Index pixel = (stage.c + apart) * static_cast<Index>(size_of(stage.dtype));
  at.g.set_distances(stage.h * stage.w * pixel, stage.w * pixel, pixel);
  return at;
}

// 2,000 stages: each iterator visits what the definition says, thread by thread.
TEST(Window, IteratorsVisitTheSame) {
  verify::Random random(22);
  Index visits = 0, outside = 0;
  for (int drawn = 0; drawn < 2000; ++drawn) {
    const Stage stage = draw_fitting(random);
    WindowSizes at = laid_out(stage, small, random.between(0, 9));
    WindowGeometry& g = at.g;
    const int size = static_cast<int>(size_of(stage.dtype));
    g.channel_bytes = at.groups.channels * size;
    std::vector<WindowTap> taps;
    for (int i = 0; i < g.r * g.s; ++i) taps.push_back(tap_of(g, i));
    const int tile = static_cast<int>(random.between(0, at.m_tiles - 1)) * small.m;
    for (int thread = static_cast<int>(random.between(0, 12)); thread < small.threads();
         thread += 13) {
      const int first = tile + tile_row(thread / chunk_units, g.window > 1),
                unit = thread % chunk_units;
      Analytic<2> analytic(g, first, 32, unit);
      Optimized<2> optimized(g, first, 32, unit);
      Precomputed<2> precomputed(g, first, 32, unit, taps.data());
      Unlimited<2> unlimited(g, first, 32, unit);
      Optimized<2> by_selects(g, first, 32, unit);
      for (int step = 0; step < at.steps; ++step) {
        for (int row = 0; row < 2; ++row) {
          const int m = first + row * 32, s = step % g.s, r = step / g.s % g.r,
                    byte = step / g.s / g.r * chunk_bytes + unit * unit_bytes;
          const bool there = m < g.m;
          const math::ConvPixel<int> pixel = g.pixel_of(there ? m : 0);
          const int h = g.rows.at(pixel.p, r), w = g.columns.at(pixel.q, s);
          const int valid = there && g.rows.inside(h) && g.columns.inside(w)
                                ? std::clamp(g.channel_bytes - byte, 0, unit_bytes)
                                : 0;
          const auto check = [&](auto& visitor) {
            ASSERT_EQ(visitor.valid(), valid > 0);
            ASSERT_EQ(visitor.bytes(), valid) << to_text(stage) << " step " << step << " m " << m;
            if (valid > 0) {
              ASSERT_EQ(visitor.at(), (WindowAt{pixel.n, h, w, byte})) << to_text(stage);
              ASSERT_EQ(visitor.get(), pixel.n * g.image + h * g.row + w * g.pixel + byte)
                  << to_text(stage);
            }
            ++visitor;
          };
          check(analytic);
          check(optimized);
          check(precomputed);
          check(unlimited);
          check(by_selects);
          if (testing::Test::HasFatalFailure()) return;
          ++visits;
          outside += valid == 0 ? 1 : 0;
        }
        analytic.advance();
        optimized.advance();
        precomputed.advance();
        unlimited.advance();
        by_selects.advance_by_selects();
      }
    }
  }
  EXPECT_GT(visits, 100000);
  EXPECT_GT(outside, visits / 20);
  EXPECT_LT(outside, visits);
}

// Filters of which no mask has all taps.
TEST(Window, UnlimitedVisitsLargeFilters) {
  for (const char* text : {"f16:n2h50w41c40k8r40s3pad3", "f16:n2h9w48c3k8r3s35pad2x4dil2x1",
                           "f16:n1h40w40c33k8r33s33pad1stride3"}) {
    WindowSizes at = laid_out(parse_stage(text), narrow, 1);
    at.g.channel_bytes = at.groups.channels * 2;
    for (int m = 0; m < at.g.m; m += 7)
      for (int unit = 0; unit < chunk_units; ++unit) {
        Analytic<1> wanted(at.g, m, 1, unit);
        Unlimited<1> is(at.g, m, 1, unit);
        for (int step = 0; step < at.steps; ++step) {
          ASSERT_EQ(is.bytes(), wanted.bytes()) << text << " m " << m << " step " << step;
          if (wanted.valid()) {
            ASSERT_EQ(is.get(), wanted.get()) << text << " step " << step;
          }
          wanted.advance(), is.advance();
        }
      }
  }
}

// True convolution is cross-correlation with taps from last to first.
TEST(Window, AnalyticFlips) {
  const Stage stage = parse_stage("f16:n2h9w8c40k8r3s4pad2x1dil1x2stride2x1");
  WindowSizes at = laid_out(stage, small, 0);
  at.g.channel_bytes = 80;
  Analytic<1> plain(at.g, 5, 1, 0), flipped(at.g, 5, 1, 0, nullptr, true);
  std::vector<WindowAt> forward, back;
  for (int tap = 0; tap < 12; ++tap) {
    forward.push_back(plain.at()), back.push_back(flipped.at());
    plain.advance(), flipped.advance();
  }
  std::reverse(back.begin(), back.end());
  EXPECT_EQ(forward, back);
  EXPECT_NE(forward.front(), forward.back());
}

TEST(Window, DividesExactly) {
  verify::Random random(3);
  for (int i = 0; i < 200000; ++i) {
    const int d = static_cast<int>(random.between(1, Index{1} << random.between(0, 30)));
    const int n = static_cast<int>(random.between(0, (Index{1} << 31) - 1));
    for (const int of : {n, n / d * d, std::max(n / d * d - 1, 0)}) {
      int quotient = of;
      ASSERT_EQ(FastDivisor(d).reduce(quotient), of % d) << of << " / " << d;
      ASSERT_EQ(quotient, of / d);
    }
  }
}

TEST(Window, SwizzleGoesThroughEveryTile) {
  for (const auto& [m, n, panel] :
       {std::array{7, 5, 2}, {1, 9, 8}, {13, 1, 1}, {4, 8, 8}, {3, 11, 4}}) {
    std::set<std::pair<int, int>> met;
    const CtaOrder order(m, n, panel);
    for (int cta = 0; cta < m * n; ++cta) {
      const CtaPlace place = order.place(cta);
      ASSERT_TRUE(place.m >= 0 && place.m < m && place.n >= 0 && place.n < n);
      met.emplace(place.m, place.n);
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(m * n));
    EXPECT_EQ(order.place(1), (n > 1 ? CtaPlace{0, 1} : CtaPlace{1, 0}));
  }
}

// Eight rows that one ldmatrix reads at one unit lie in all 32 banks; a row's units in four places.
TEST(Window, SwizzleMeetsEveryBank) {
  for (int first = 0; first < 64; first += 8)
    for (int unit = 0; unit < chunk_units; ++unit) {
      std::set<int> banks;
      for (int row = first; row < first + 8; ++row) banks.insert(swizzled(row, unit) / 16 % 8);
      EXPECT_EQ(banks.size(), 8U);
      // The second part of a row: two units on, one bit of the address (WindowReads).
      if (unit < 2) {
        EXPECT_EQ(swizzled(first + 3, unit) ^ product_bytes, swizzled(first + 3, unit + 2));
      }
    }
}

/// What mma makes of shared memory: which rows and columns a lane has, and what becomes of them.
void expect_convolution(const Stage& stage, const WindowTile& tile) {
  SCOPED_TRACE(to_text(stage) + " " + tile.name());
  const WindowSizes at = laid_out(stage, tile, 0);
  const int size = static_cast<int>(size_of(stage.dtype)), of_chunk = chunk_bytes / size,
            of_part = product_bytes / size;
  std::vector<float> x(static_cast<std::size_t>(stage.n * stage.h * stage.w * stage.c)),
      w(static_cast<std::size_t>(shapes_of(stage).w_elements));
  verify::Random random(1);
  for (float& v : x) v = static_cast<float>(random.between(-3, 3));
  for (float& v : w) v = static_cast<float>(random.between(-3, 3));
  const std::vector<float> packed = window_weights(stage, at.in_order, w.data());
  const Shapes shapes = shapes_of(stage);
  std::map<std::pair<int, int>, float> y;  // of pixel before the pool (row of the GEMM) and filter
  for (int cta = 0; cta < at.m_tiles * at.n_tiles; ++cta) {
    const CtaPlace place = at.order.place(cta);
    const int a_group = at.n_tiles / at.groups.count, group = place.n / a_group,
              first = place.n % a_group * tile.n;
    const int channels = std::min(at.groups.channels, at.c - group * at.groups.channels),
              filters = std::min(at.groups.filters, at.k - group * at.groups.filters);
    for (int row = 0; row < tile.m; ++row) {
      const int m = place.m * tile.m + tile_row(row, at.g.window > 1);
      if (m >= at.g.m) continue;
      const math::ConvPixel<int> pixel = at.g.pixel_of(m);
      for (int column = 0; column < tile.n; ++column) {
        const int filter = first + (column & ~31) + filter_of_row(column & 31, at.in_order);
        ASSERT_EQ(row_of_filter(filter_of_row(column & 31, at.in_order), at.in_order), column & 31);
        if (filter >= filters) continue;
        float sum = 0;
        for (int step = 0; step < at.steps; ++step) {
          const int chunk = step / (at.g.r * at.g.s);
          const int h = at.g.rows.at(pixel.p, step / at.g.s % at.g.r),
                    v = at.g.columns.at(pixel.q, step % at.g.s);
          if (!at.g.rows.inside(h) || !at.g.columns.inside(v)) continue;
          for (int c = 0; c < of_chunk && chunk * of_chunk + c < channels; ++c) {
            const int part = chunk * 2 + c / of_part, live = 4 * part + (column & 31) / 8;
            if (tile.sparse && at.groups.merged > 1 && (at.groups.live >> live & 1) == 0) continue;
            const Index slab =
                (static_cast<Index>(group) * at.blocks + (first + column) / 32) * at.steps + step;
            sum += x[static_cast<std::size_t>(((pixel.n * stage.h + h) * stage.w + v) * stage.c +
                                              group * at.groups.channels + chunk * of_chunk + c)] *
                   packed[static_cast<std::size_t>((slab * 32 + column % 32) * of_chunk + c)];
          }
        }
        ASSERT_TRUE(y.emplace(std::pair(m, group * at.groups.filters + filter), sum).second);
      }
    }
  }
  const Index p = stage.pool ? shapes.out_h * 2 : shapes.p,
              q = stage.pool ? shapes.out_w * 2 : shapes.q;
  ASSERT_EQ(y.size(), static_cast<std::size_t>(stage.n * p * q * stage.k));
  for (const auto& [where, sum] : y) {
    const math::ConvPixel<int> pixel = at.g.pixel_of(where.first);
    const Index k = where.second, own = stage.c / stage.groups,
                group = k / (stage.k / stage.groups);
    float expected = 0;
    for (Index r = 0; r < stage.r; ++r)
      for (Index s = 0; s < stage.s; ++s) {
        const Index h = pixel.p * stage.stride.h - stage.pad.top + r * stage.dil.h,
                    v = pixel.q * stage.stride.w - stage.pad.left + s * stage.dil.w;
        if (h < 0 || h >= stage.h || v < 0 || v >= stage.w) continue;
        for (Index c = 0; c < own; ++c)
          expected += x[static_cast<std::size_t>(((pixel.n * stage.h + h) * stage.w + v) * stage.c +
                                                 group * own + c)] *
                      w[static_cast<std::size_t>(((k * stage.r + r) * stage.s + s) * own + c)];
      }
    ASSERT_EQ(sum, expected) << where.first << " " << k;
  }
}

TEST(Window, TilesMakeTheConvolution) {
  for (const char* text :
       {"f16:n2h7w9c40k72r3pad1+max2", "f16:n1h12c8k136r3stride2pad1",
        "f16:n2h8c32k32r3pad1groups8", "bf16:n2h6w5c36k28r3pad1groups4+max2",
        "f16:n1h5c10k20r3pad1groups5", "n2h7c24k40r3pad1+max2", "n1h6w8c32k32r3pad1groups8",
        "n1h4c12k6r2s3dil2pad2groups3", "f16:n1h6c128k128r3pad1groups2", "f16:n1h5c70k70r1groups35",
        "n2h3c33k65r1"}) {
    const Stage stage = parse_stage(text);
    for (const WindowTile& tile : window_tiles(stage, a_gpu(90)))
      if (!tile.box) expect_convolution(stage, tile);
    expect_convolution(stage, narrow);  // what any x takes
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Results of four lanes are eight neighbouring channels each, a window's values a thread's.
TEST(Window, AThreadHasWindowsAndNeighbours) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int block = 0; block < 64; block += 32) {
      std::set<int> windows, at;
      for (int i = 0; i < 4; ++i) {  // registers of two mma instructions
        const int m = tile_row(block + i * 8 + lane / 4, true);
        windows.insert(m / 4), at.insert(m % 4);
      }
      EXPECT_EQ(windows, (std::set<int>{block / 4 + lane / 4}));
      EXPECT_EQ(at.size(), 4U);
    }
    for (int j = 0; j < 4; ++j)
      for (int odd = 0; odd < 2; ++odd)
        EXPECT_EQ(filter_of_row(j * 8 + lane % 4 * 2 + odd, false), lane % 4 * 8 + j * 2 + odd);
  }
}

TEST(Window, NeedsAmpereAndTakesAnyOfIt) {
  const Stage stage = parse_stage("f16:n2h8c12k8r3pad1groups4+bias+relu+max2");
  EXPECT_EQ(window_refusals(stage, a_gpu(75)).size(), 1U);
  for (const int capability : {80, 86, 89, 90, 120})
    EXPECT_TRUE(window_refusals(stage, a_gpu(capability)).empty()) << capability;
  EXPECT_EQ(window_refusals(parse_stage("n2h8c15k8r1"), a_gpu(80)).size(), 1U);
  EXPECT_TRUE(window_refusals(parse_stage("n2h8c16k8r1"), a_gpu(80)).empty());
  EXPECT_EQ(
      window_refusals(parse_stage("f16:n2h8c8k8r3out(bf16)+max3+leaky(-1)"), a_gpu(80)).size(), 3U);
}

// An 8.6 has 99 KiB of shared memory for a CTA: no tile that takes two steps between barriers.
TEST(Window, TilesFitTheSharedMemory) {
  const Stage stage = parse_stage("f16:n2h8c64k256r3pad1");
  Machine machine = a_gpu(86);
  const auto pairs = [&] {
    const auto tiles = window_tiles(stage, machine);
    return std::count_if(tiles.begin(), tiles.end(), [](const auto& tile) { return tile.pairs; });
  };
  EXPECT_EQ(pairs(), 3);
  machine.shared_memory_bytes = 99 << 10;
  EXPECT_EQ(pairs(), 0);
  EXPECT_TRUE(window_refusals(stage, machine).empty());
  EXPECT_FALSE(window_tiles(stage, machine).empty());
}

}  // namespace
}  // namespace convoy::cuda::sm80
