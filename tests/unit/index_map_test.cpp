// Index maps of a convolution on drawn stages: each map and its inverse agree, and together they
// name every (output, product) once.
#include "math/index_map.hpp"

#include <gtest/gtest.h>

#include <set>

#include "verify/draw.hpp"

namespace convoy {
namespace {

std::vector<Stage> drawn() {
  verify::Random random(21);
  std::vector<Stage> stages;
  for (int i = 0; i < 300; ++i) stages.push_back(verify::draw_stage(random, DeviceKind::cpu));
  return stages;
}

TEST(IndexMap, PixelsAndTapsAreNumberedWithoutGaps) {
  for (const Stage& stage : drawn()) {
    SCOPED_TRACE(to_text(stage));
    const Shapes shapes = shapes_of(stage);
    const math::ConvPixels<Index> pixels{shapes.p, shapes.q};
    const math::ConvTaps<Index> taps{stage.s, stage.c / stage.groups};
    Index m = 0, k = 0;
    for (Index n = 0; n < stage.n; ++n)
      for (Index p = 0; p < shapes.p; ++p)
        for (Index q = 0; q < shapes.q; ++q, ++m) {
          const math::ConvPixel<Index> pixel{n, p, q};
          ASSERT_EQ(pixels.number(pixel), m);
          ASSERT_EQ(pixels.at(m), pixel);
        }
    EXPECT_EQ(m, shapes.gemm_m);
    for (Index r = 0; r < stage.r; ++r)
      for (Index s = 0; s < stage.s; ++s)
        for (Index c = 0; c < taps.c; ++c, ++k) {
          const math::ConvTap<Index> tap{r, s, c};
          ASSERT_EQ(taps.number(tap), k);
          ASSERT_EQ(taps.at(k), tap);
        }
    EXPECT_EQ(k, shapes.gemm_k);
  }
}

// From the output to the input and back, on both axes; a position inside that no output reads with
// a tap has none, and 32 bits give what 64 do.
TEST(IndexMap, OutputsAndPositionsAgree) {
  for (const Stage& stage : drawn()) {
    SCOPED_TRACE(to_text(stage));
    const Shapes shapes = shapes_of(stage);
    const auto check = [](const math::ConvAxis<Index>& axis, const math::ConvAxis<int>& narrow,
                          Index outputs, Index taps, Index padded) {
      std::set<std::pair<Index, Index>> read;  // (position, tap)
      for (Index output = 0; output < outputs; ++output) {
        for (Index tap = 0; tap < taps; ++tap) {
          const Index at = axis.at(output, tap);
          ASSERT_GE(at, -axis.pad);
          ASSERT_LT(at, padded - axis.pad);
          ASSERT_EQ(axis.inside(at), at >= 0 && at < axis.size);
          ASSERT_EQ(axis.output_of(at, tap, outputs), output);
          ASSERT_EQ(narrow.at(static_cast<int>(output), static_cast<int>(tap)), at);
          read.emplace(at, tap);
        }
      }
      for (Index at = 0; at < axis.size; ++at)
        for (Index tap = 0; tap < taps; ++tap)
          ASSERT_EQ(axis.output_of(at, tap, outputs) >= 0, read.contains({at, tap}));
    };
    check(math::conv_rows(stage), math::conv_rows<int>(stage), shapes.p, stage.r,
          stage.h + stage.pad.top + stage.pad.bottom);
    check(math::conv_columns(stage), math::conv_columns<int>(stage), shapes.q, stage.s,
          stage.w + stage.pad.left + stage.pad.right);
  }
}

}  // namespace
}  // namespace convoy
