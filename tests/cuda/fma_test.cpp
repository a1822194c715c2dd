// The fma family's index maps, checked on the host: rows, products, packed weights, and which
// thread has which output.
#include "cuda/any/fma.hpp"

#include <gtest/gtest.h>

#include <set>

#include "verify/draw.hpp"

namespace convoy::cuda {
namespace {

using Pixel = math::ConvPixel<int>;

Stage draw_fitting(verify::Random& random) {
  while (true) {
    Stage s;
    s.n = random.between(1, 3);
    s.h = random.between(1, 12), s.w = random.between(1, 12);
    s.r = random.between(1, 5), s.s = random.between(1, 5);
    s.stride = Extent(random.between(1, 3), random.between(1, 3));
    s.pad.top = random.between(0, 4), s.pad.right = random.between(0, 4);
    s.groups = random.chance(0.5) ? random.between(1, 5) : 1;
    s.c = s.groups * random.between(1, random.chance(0.3) ? 40 : 6);
    s.k = s.groups * random.between(1, random.chance(0.3) ? 90 : 6);
    if (random.chance(0.5)) s.pool = max_pool(2);
    if (problems(s).empty() && fma_refusals(s).empty()) return s;
  }
}

// Every pixel that the pool takes is one row; the four of a window lie side by side.
TEST(Fma, RowsArePixelsWindowByWindow) {
  verify::Random random(3);
  for (int drawn = 0; drawn < 300; ++drawn) {
    const Stage stage = draw_fitting(random);
    SCOPED_TRACE(to_text(stage));
    const Shapes shapes = shapes_of(stage);
    const FmaRows rows = fma_sizes(stage, fma_large).rows;
    const int window = stage.pool ? 2 : 1, of_window = window * window;
    const Index taken = stage.pool ? 4 * shapes.out_h * shapes.out_w : shapes.p * shapes.q;
    ASSERT_EQ(rows.m, stage.n * taken);
    std::set<std::tuple<int, int, int>> seen;
    for (int m = 0; m < rows.m; ++m) {
      const Pixel pixel = rows.pixel_of(m), first = rows.pixel_of(m - m % of_window);
      seen.insert({pixel.n, pixel.p, pixel.q});
      ASSERT_EQ(pixel.n, first.n);
      ASSERT_EQ(pixel.p / window, first.p / window);
      ASSERT_EQ(pixel.q / window, first.q / window);
      ASSERT_TRUE(pixel.n < stage.n && pixel.p < shapes.p && pixel.q < shapes.q);
    }
    ASSERT_EQ(seen.size(), static_cast<std::size_t>(rows.m));
  }
}

TEST(Fma, TapsAdvanceAStep) {
  verify::Random random(4);
  for (int drawn = 0; drawn < 300; ++drawn) {
    const int s = random.between(1, 40), c = random.between(1, random.chance(0.5) ? 5 : 300);
    const math::ConvTaps<int> all{s, c};
    const FmaTaps taps(s, c);
    for (int product = 0; product < fma_depth; ++product) {
      math::ConvTap<int> at = all.at(product);
      for (int step = 0; step < 50; ++step, taps.advance(at))
        ASSERT_EQ(at, all.at(product + step * fma_depth)) << "s " << s << ", c " << c;
    }
  }
}

TEST(Fma, WeightsLieByProductsAndFilters) {
  verify::Random random(5);
  for (int drawn = 0; drawn < 300; ++drawn) {
    const Stage stage = draw_fitting(random);
    SCOPED_TRACE(to_text(stage));
    const FmaSizes at = fma_sizes(stage, fma_small);
    const Index products = stage.r * stage.s * at.group_c;
    std::vector<float> w(static_cast<std::size_t>(stage.k * products));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i + 1);
    const std::vector<float> packed = fma_weights(stage, w.data());
    const Index depth = Index{at.steps} * fma_depth;
    ASSERT_EQ(packed.size(), static_cast<std::size_t>(stage.groups * depth * at.padded_k));
    std::size_t found = 0;
    for (Index group = 0; group < stage.groups; ++group)
      for (Index product = 0; product < depth; ++product)
        for (Index filter = 0; filter < at.padded_k; ++filter) {
          const float there =
              packed[static_cast<std::size_t>((group * depth + product) * at.padded_k + filter)];
          const bool is_one = product < products && filter < at.group_k;
          const Index k = group * at.group_k + filter;
          ASSERT_EQ(there, is_one ? w[static_cast<std::size_t>(k * products + product)] : 0);
          found += is_one ? 1 : 0;
        }
    ASSERT_EQ(found, w.size());
  }
}

TEST(Fma, ThreadsShareATile) {
  for (const FmaTile& tile : {fma_large, fma_medium, fma_small, fma_narrow}) {
    const int across = tile.n / tile.thread_n;
    std::set<std::pair<int, int>> outputs;
    for (int thread = 0; thread < fma_threads; ++thread)
      for (int i = 0; i < tile.thread_m; ++i)
        for (int j = 0; j < tile.thread_n; ++j)
          outputs.insert({fma_place(thread / across, i, tile.m, tile.thread_m),
                          fma_place(thread % across, j, tile.n, tile.thread_n)});
    EXPECT_EQ(outputs.size(), static_cast<std::size_t>(tile.m * tile.n));
    EXPECT_EQ(outputs.rbegin()->first, tile.m - 1);
  }
}

}  // namespace
}  // namespace convoy::cuda
