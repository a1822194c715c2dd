// Who does what in a CTA of `fma`: which part of the output a CTA has, how its shared memory lies,
// what a thread brings of each step, which sums it holds. Host and device: the kernel calls these,
// and so does what shows it (inspect/kernel_map).
#pragma once

#include "cuda/any/fma_tile.hpp"

namespace convoy::cuda {

/// A tile's numbers as the kernel uses them.
template <FmaTile Tile>
struct FmaShape {
  static constexpr int m = Tile.m, n = Tile.n, thread_m = Tile.thread_m, thread_n = Tile.thread_n;
  static constexpr int ctas = Tile.ctas;
  static constexpr int across = n / thread_n;  // threads side by side along the filters
};

/// What `make.operator()<Shape>()` gives of the family's tile that `tile` equals.
template <class Make>
auto with_fma_shape(const FmaTile& tile, const Make& make) {
  if (tile == fma_large) return make.template operator()<FmaShape<fma_large>>();
  if (tile == fma_medium) return make.template operator()<FmaShape<fma_medium>>();
  if (tile == fma_small) return make.template operator()<FmaShape<fma_small>>();
  return make.template operator()<FmaShape<fma_narrow>>();
}

/// Which rows of y and filters a CTA makes. CTAs of the same pixels start one after another.
struct FmaCta {
  int m, group, filter;  // the first row, the first filter of the group
  CONVOY_HD FmaCta(const FmaSizes& at, int tile_m, int tile_n, int block) {
    const int of_group = (at.group_k - 1) / tile_n + 1, n_tile = block % at.n_tiles;
    m = block / at.n_tiles * tile_m;
    group = n_tile / of_group;
    filter = n_tile % of_group * tile_n;
  }
};

/// Where a row's products begin in x: its image, and its first tap's position, which may lie
/// outside.
struct alignas(16) FmaRow {
  Index at;  // in elements
  int h, w;
  CONVOY_HD void begin_at(const math::ConvPixel<int>& pixel, const math::ConvAxis<int>& rows,
                          const math::ConvAxis<int>& columns, const Strides& x) {
    h = rows.at(pixel.p, 0), w = columns.at(pixel.q, 0);
    at = pixel.n * x.n + h * x.h + w * x.w;
  }
};

/// Where a product lies from a row's begin, and up to where it is inside the image.
struct FmaTapPlace {
  int down, right;
  Index channel, at;  // of x; in elements
  unsigned high, wide;
  /// `r`: the filter's rows, beyond which there is no product; `group_c`: the group's first
  /// channel.
  CONVOY_HD FmaTapPlace(const math::ConvTap<int>& tap, int r, Index group_c,
                        const math::ConvAxis<int>& rows, const math::ConvAxis<int>& columns,
                        const Strides& x) {
    const bool there = tap.r < r;
    down = there ? tap.r * rows.dil : 0, right = tap.s * columns.dil;
    channel = group_c + tap.c;
    at = down * x.h + right * x.w + channel * x.c;
    high = static_cast<unsigned>(there ? rows.size : 0);
    wide = static_cast<unsigned>(columns.size);
  }
  /// Of a row that begins at (h, w). Two functions: behind one, ptxas orders all of the loop anew.
  CONVOY_HD bool row_inside(int h) const { return static_cast<unsigned>(h + down) < high; }
  CONVOY_HD bool column_inside(int w) const { return static_cast<unsigned>(w + right) < wide; }
};

constexpr int fma_gap = 4;  // floats behind a product's pixels: fewer bank conflicts of the writes
template <class Shape>
struct FmaShared {
  float pixels[2][fma_depth][Shape::m + fma_gap];
  float filters[2][fma_depth][Shape::n];
  FmaRow rows[Shape::m];
  Index y_at[Shape::m];  // in elements, of the row's window; -1: there is no such row
};
/// Which of the two a step is multiplied from.
CONVOY_HD constexpr int fma_slot(int step) {
  return step & 1;
}

/// What a thread brings of each step's pixels: one product of every so many-th row.
struct FmaCopies {
  int product, row;  // the first row
  CONVOY_HD explicit FmaCopies(int thread) : product(thread % fma_depth), row(thread / fma_depth) {}
};
constexpr int fma_rows_between = fma_threads / fma_depth;
/// Four neighbouring filters of a product: number `four` of a step's, of `fours` a product.
struct FmaFour {
  int product, filter;
  CONVOY_HD FmaFour(int four, int fours) : product(four / fours), filter(four % fours * 4) {}
};

/// Which part of the CTA's tile a thread has: to be given to fma_place.
struct FmaPart {
  int row, column;
  CONVOY_HD FmaPart(int thread, int across) : row(thread / across), column(thread % across) {}
};

}  // namespace convoy::cuda
