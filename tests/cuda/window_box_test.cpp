// The boxes of pixels of the window family, checked on the host: each pixel is loaded where its
// taps look for it, and made once.
#include "cuda/sm80/window_box.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "bench/fit/h200.hpp"
#include "cuda/sm80/window_tile.hpp"
#include "verify/draw.hpp"

namespace convoy::cuda::sm80 {
namespace {

/// Of a box tile: that each output is some CTA's, once, and that its taps read their pixels of x or
/// what was cleared.
void expect_boxes(const Stage& stage, const WindowTile& tile, int multiprocessors) {
  SCOPED_TRACE(to_text(stage) + " " + tile.name());
  Machine machine = machine_of(h200());
  machine.multiprocessors = multiprocessors;
  WindowSizes at = window_sizes(stage, tile);
  set_machine(at, stage, tile, machine);
  const WindowBox& box = at.box;
  const WindowGeometry& g = at.g;
  const int stride = g.rows.stride;
  ASSERT_LE(box.bytes(), most_box_bytes);
  ASSERT_LE(at.m_tiles, box.count);
  std::vector<int> met(static_cast<std::size_t>(g.m));
  for (int cta = 0; cta < at.m_tiles * at.n_tiles; ++cta) {
    const CtaPlace place = at.order.place(cta);
    ASSERT_TRUE(place.m < at.m_tiles && place.n < at.n_tiles);
    if (place.n != 0) continue;
    for (int number = place.m; number < box.count; number += at.m_tiles) {
      const math::ConvPixel<int> first = box.first_of(number);
      std::map<int, math::ConvPixel<int>> shared;  // where: which pixel of x
      for (int row = 0; row < box.images * box.in_rows; ++row)
        for (int column = 0; column < box.in_columns; ++column) {
          const int where = box.input_at(row, column);
          ASSERT_EQ(box.input_at(0, column % box_columns) +
                        column / box_columns * box.next_columns +
                        row * box.in_row() * box_pixel_bytes,
                    where);
          const math::ConvPixel<int> pixel{first.n + row / box.in_rows,
                                           g.rows.at(first.p, 0) + row % box.in_rows,
                                           g.columns.at(0, 0) + column};
          ASSERT_TRUE(shared.emplace(where, pixel).second);
          ASSERT_LE(where + box_pixel_bytes, box.bytes());
        }
      for (int index = 0; index < box.pixels(); ++index) {
        const math::ConvPixel<int> in = box.pixel_of(index),
                                   pixel{first.n + in.n, first.p + in.p, in.q};
        for (int tap = 0; tap < box_taps; ++tap) {
          const auto found = shared.find(box.output_at(in, stride) + box.taps[tap]);
          ASSERT_NE(found, shared.end());
          ASSERT_EQ(found->second,
                    (math::ConvPixel<int>{pixel.n, g.rows.at(pixel.p, tap / box_taps_along),
                                          g.columns.at(pixel.q, tap % box_taps_along)}));
        }
        if (pixel.n >= at.images || pixel.p >= static_cast<int>(g.down.d) * box.window) continue;
        // Where the kernel writes it: so many rows of whole windows behind the box's first.
        const int row = first.n * static_cast<int>(g.down.d) * box.window + first.p;
        const int m = row * box.columns + index;
        ASSERT_EQ(g.pixel_of(m), pixel);
        ++met[static_cast<std::size_t>(m)];
      }
    }
  }
  EXPECT_EQ(std::count(met.begin(), met.end(), 1), g.m);
}

TEST(Window, BoxesTakeEveryPixelOnce) {
  verify::Random random(5);
  int drawn = 0, several_images = 0, several_boxes = 0;
  while (drawn < 300) {
    Stage s;
    s.dtype = random.chance(0.5) ? DType::f16 : DType::bf16;
    s.n = random.between(1, 9);
    s.h = random.between(1, 40), s.w = random.between(1, 40);
    s.r = s.s = 3;
    s.stride = Extent(random.between(1, 3), random.pick<Index>({1, 1, 2, 3, 4}));
    s.dil = Extent(random.between(1, 2), random.between(1, 2));
    for (Index* side : {&s.pad.top, &s.pad.left, &s.pad.bottom, &s.pad.right})
      *side = random.between(0, 3);
    s.groups = random.between(1, 9);
    s.c = s.groups * random.pick<Index>({2, 4, 8, 16, 32});
    s.k = s.groups * random.pick<Index>({1, 2, 4, 8, 16, 32});
    if (random.chance(0.5)) s.pool = max_pool(2);
    if (!problems(s).empty() || !window_refusals(s, machine_of(h200())).empty()) continue;
    for (const WindowTile& tile : window_tiles(s, machine_of(h200()))) {
      if (!tile.box) continue;
      const WindowBox box = box_of(s, tile);
      several_images += box.images > 1, several_boxes += box.of_image.d > 1;
      ++drawn;
      expect_boxes(s, tile, static_cast<int>(random.between(1, 6)));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(several_images, 30);
  EXPECT_GT(several_boxes, 30);
}

// Which part of the pixels sixteen filters take, where it is one.
TEST(Window, BoxPartsAreThoseOfTheGroups) {
  const auto parts = [](const char* text) {
    const Stage stage = parse_stage(text);
    return box_parts(window_sizes(stage, box128).groups, stage.dtype);
  };
  EXPECT_EQ(parts("f16:n1h9c128k128r3groups32"), 1);  // 4 channels, 4 filters
  EXPECT_EQ(parts("f16:n1h9c512k512r3groups32"), 1);  // 16
  EXPECT_EQ(parts("f16:n1h9c64k64r3groups2"), 2);     // 32
  EXPECT_EQ(parts("f16:n1h9c64k32r3groups16"), 2);    // 16 filters of eight groups
  EXPECT_EQ(parts("f16:n1h9c16k32r3"), 1);
}

}  // namespace
}  // namespace convoy::cuda::sm80
