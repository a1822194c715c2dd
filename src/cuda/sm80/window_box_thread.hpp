// Who does what in a CTA of the window family's boxes: which bytes a thread copies, which rows and
// filters its sums are. Host and device: the kernel calls these, and so does what shows it
// (inspect/kernel_map).
#pragma once

#include "cuda/sm80/window_tile.hpp"

namespace convoy::cuda::sm80 {

constexpr int box_filters = 16;  // of a warp

/// A CTA's group, which all of its boxes have.
struct BoxGroup {
  int channels, filters;  // that there are: the last merged one may have fewer
  CONVOY_HD BoxGroup(const WindowSizes& at, int group) {
    const auto least = [](int a, int b) { return a < b ? a : b; };
    channels = least(at.groups.channels, at.c - group * at.groups.channels);
    filters = least(at.groups.filters, at.k - group * at.groups.filters);
  }
};

/// Which of a warp's rows of x a lane copies: one 16-byte unit of every eighth pixel.
struct BoxCopies {
  int column, unit;  // the first column
  CONVOY_HD explicit BoxCopies(int lane) : column(lane / chunk_units), unit(lane % chunk_units) {}
};

/// Whether the filters of a half have channels in common with a pixel's first 32-byte part: their
/// two bits of WindowGroups::live.
CONVOY_HD std::uint32_t box_first_part(std::uint32_t live, int half) {
  return live >> (2 * half) & 3;
}

/// The box's GEMM row whose pixels a lane gives ldmatrix, of the warp's first (i = 0) and second
/// 16; lanes from 16 on read the next 16 bytes.
CONVOY_HD int box_row_of(int lane, int i, bool pooled) {
  return tile_row(i * 16 + lane % 16, pooled);
}

/// The filter, of the block of 32, whose weights a lane gives ldmatrix: column c of product j is
/// filter c/2*4 + 2j + c%2 of the warp's 16, so that a thread's results are four neighbours.
CONVOY_HD int box_filter_of(int lane, int half) {
  const int column = lane % 8, j = lane / 16;
  return half * box_filters + (column >> 1) * 4 + 2 * j + (column & 1);
}

/// Where a lane's sum number e lies, of sums[2][2][4]: row of the warp's 32, filter of the lane's
/// four.
struct BoxSumPlace {
  int row, of_four;
  CONVOY_HD BoxSumPlace(int lane, int e, bool pooled)
      : row(tile_row(e / 8 * 16 + e / 2 % 2 * 8 + lane / 4, pooled)),
        of_four(e / 4 % 2 * 2 + e % 2) {}
};
/// The first of a lane's four filters, of the block of 32.
CONVOY_HD int box_four(int lane, int half) {
  return half * box_filters + lane % 4 * 4;
}

/// How many rows of outputs there are from row `row` on: of a box that begins at `first`, which is
/// that row of y before the pool, over all images. `of_image`: rows of an image.
CONVOY_HD int box_rows_from(const WindowSizes& at, const math::ConvPixel<int>& first, int row,
                            int of_image) {
  return at.box.images > 1 ? at.images * of_image - row : of_image - first.p;
}

}  // namespace convoy::cuda::sm80
