// What lies where in the implicit GEMM of kernel `fma`: rows, and products in the order r, s, c.
// Host and device.
//
// Rows are output pixels before the pool, numbered window by window: m -> (n, p/2, q/2, dp, dq), so
// that the four pixels of a window lie side by side.
#pragma once

#include "math/index_map.hpp"

namespace convoy::cuda {

constexpr int fma_depth = 16;  // products of an output, a step

struct FmaRows {
  int window = 1;            // side of a pooling window, 1 or 2; 1: no pool
  int down = 1, across = 1;  // windows of an image
  int m = 0;                 // rows of all images of a run

  /// The pixel of row `index`, which is below `m`.
  CONVOY_HD math::ConvPixel<int> pixel_of(int index) const {
    const int bits = window - 1, of_window = index & (window * window - 1);
    const int number = index / (window * window), q = number % across, rest = number / across;
    const int p = rest % down, n = rest / down;
    return {n, (p << bits) + (of_window >> bits), (q << bits) + (of_window & bits)};
  }
  /// The way back; -1: the pool takes no window of the pixel.
  int row_of(const math::ConvPixel<int>& at) const {
    const int bits = window - 1, p = at.p >> bits, q = at.q >> bits;
    if (p >= down || q >= across) return -1;
    const int of_window = ((at.p & bits) << bits) + (at.q & bits);
    return ((at.n * down + p) * across + q) * window * window + of_window;
  }
};

/// A walk over the products of an output, a step at a time. No division.
struct FmaTaps {
  int s = 1, c = 1;
  math::ConvTap<int> step;  // fma_depth products further

  FmaTaps() = default;
  FmaTaps(int s_, int c_) : s(s_), c(c_), step(math::ConvTaps<int>{s_, c_}.at(fma_depth)) {}
  CONVOY_HD void advance(math::ConvTap<int>& at) const {
    at.c += step.c;
    const int next_s = at.c >= c ? 1 : 0;
    at.c -= next_s * c;
    at.s += step.s + next_s;
    const int next_r = at.s >= s ? 1 : 0;
    at.s -= next_r * s;
    at.r += step.r + next_r;
  }
};

/// Row or column number `i` of those that thread `place` has of a tile: fours that lie a share of
/// the tile apart, so that threads side by side read neighbouring words.
CONVOY_HD constexpr int fma_place(int place, int i, int tile, int of_thread) {
  return i / 4 * (tile / (of_thread / 4)) + 4 * place + i % 4;
}
/// The way back.
struct FmaHeld {
  int place, i;
};
constexpr FmaHeld fma_held(int at, int tile, int of_thread) {
  const int share = tile / (of_thread / 4);
  return {at % share / 4, at / share * 4 + at % 4};
}

}  // namespace convoy::cuda
