// The window family's boxes: some output pixels whose input lies in shared memory at once, so
// that each pixel is loaded once and a tap is the same pixels at another distance. Host and device.
//
// For 3x3 filters of groups whose channels are one chunk. A pixel's 64 bytes lie 80 apart: eight
// neighbours touch all banks. With a stride, columns that one tap reads lie side by side: all of
// one remainder (a phase), then those of the next.
#pragma once

#include <cstdint>

#include "cuda/sm80/window_geometry.hpp"

namespace convoy::cuda::sm80 {

constexpr int box_taps_along = 3;
constexpr int box_taps = box_taps_along * box_taps_along;
constexpr int box_pixel_bytes = chunk_bytes + unit_bytes;
constexpr int box_rows = 32;    // of the GEMM, of a warp at a time: eight windows
constexpr int box_columns = 8;  // of x, that a warp copies at a time
constexpr int box_weight_bytes = box_taps * slab_bytes;
constexpr int most_box_bytes = 48 << 10;  // of shared memory

/// Whole rows of outputs, so that their pixels (with a pool their windows) are neighbours in y:
/// some of an image, or all of several.
struct WindowBox {
  int images = 1, rows = 0, columns = 1;  // of outputs, before the pool; no rows: no box
  FastDivisor down, across;               // windows of an image's
  int in_rows = 1, in_columns = 1;        // of x below an image's
  FastDivisor of_rows;                    // in_rows
  int phases = 1, phase = 1;              // of columns: the stride; columns of one
  int window = 1;                         // side of a pooling window
  FastDivisor of_image;                   // boxes of an image
  int count = 0, slots = 1;               // of a run: boxes; of a CTA: boxes in shared memory
  // Distances in shared memory, bytes: of the taps, and of columns that a thread copies.
  int taps[box_taps] = {}, next_columns = 0;

  CONVOY_HD int pixels() const { return images * rows * columns; }
  CONVOY_HD int in_row() const { return phases * phase; }  // pixels of a row in shared memory
  CONVOY_HD int bytes() const {
    return (images * in_rows * in_row() * box_pixel_bytes + 127) & -128;
  }
  /// Of the table of output_at, by rows of the GEMM, whole warps of them.
  CONVOY_HD int table_rows() const { return (pixels() + box_rows - 1) & -box_rows; }
  /// The weights lie where the second slot is filled later.
  CONVOY_HD int shared_bytes() const {
    const int second = slots > 1 && bytes() > box_weight_bytes ? bytes() : box_weight_bytes;
    return table_rows() * 4 + bytes() + second;
  }

  /// Image and row of the first pixel of box `number`.
  CONVOY_HD math::ConvPixel<int> first_of(int number) const {
    int n = number;
    const int p = of_image.reduce(n);
    return {n * images, p * rows, 0};
  }
  /// Row `index` of the box's GEMM, window by window: counted from the box's first pixel.
  CONVOY_HD math::ConvPixel<int> pixel_of(int index) const {
    const int bits = window - 1, dq = index & bits, dp = index >> bits & bits;
    int p = index >> 2 * bits, n = 0;
    const int q = across.reduce(p);
    if (images > 1) n = p, p = down.reduce(n);
    return {n, (p << bits) + dp, (q << bits) + dq};
  }
  /// The way back.
  int row_of(const math::ConvPixel<int>& at) const {
    const int bits = window - 1, p = at.p >> bits, q = at.q >> bits;
    const auto high = static_cast<int>(down.d), wide = static_cast<int>(across.d);
    return (((at.n * high + p) * wide + q) << 2 * bits) + ((at.p & bits) << bits) + (at.q & bits);
  }
  /// Where a pixel of row `row` of x lies, those of all images counted.
  CONVOY_HD int input_at(int row, int column) const {
    return (row * in_row() + column % phases * phase + column / phases) * box_pixel_bytes;
  }
  /// Where the first tap of an output reads; other taps are `taps` further on.
  CONVOY_HD int output_at(const math::ConvPixel<int>& pixel, int stride) const {
    return ((pixel.n * in_rows + pixel.p * stride) * in_row() + pixel.q) * box_pixel_bytes;
  }
};

}  // namespace convoy::cuda::sm80
