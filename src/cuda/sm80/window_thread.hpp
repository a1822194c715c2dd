// Who does what in a CTA of the window family: which part of the output a CTA has, which bytes a
// thread copies and reads, which sums it holds and stores. Host and device: the kernel calls these,
// and so does what shows it (inspect/kernel_map).
#pragma once

#include "cuda/sm80/window_tile.hpp"

namespace convoy::cuda::sm80 {

/// The part of the output that a CTA has, worked out once.
struct WindowCta {
  int m;         // its first row of the GEMM
  int group;     // as the kernel has them
  int filter;    // its first filter, of the group
  int channels;  // of the group that there are: the last merged one may have fewer
  int filters;
  /// CTA number `cta`, in the order in which they start.
  CONVOY_HD WindowCta(const WindowSizes& at, int tile_m, int tile_n, int cta) {
    const auto least = [](int a, int b) { return a < b ? a : b; };
    const CtaPlace place = at.order.place(cta);
    m = place.m * tile_m;
    group = place.n;
    filter = at.of_group.reduce(group) * tile_n;
    channels = least(at.groups.channels, at.c - group * at.groups.channels);
    filters = least(at.groups.filters, at.k - group * at.groups.filters);
  }
};

/// What a thread copies of each step: one unit of every `rows_between`-th row, and of every
/// `blocks_between`-th block of weights. So a thread's copies have one swizzle.
constexpr int slab_units = block_filters * chunk_units;
constexpr int blocks_between(int threads) {
  return threads / slab_units;
}
constexpr int rows_between(int threads) {
  return blocks_between(threads) * block_filters;
}
struct WindowCopies {
  int row, unit;       // of the tile in shared memory, the first; of each row
  int block, in_slab;  // of the weights, the first; bytes from the begin of each slab
  int to;              // bytes from the begin of the pixels, and of the weights, of a slot
  CONVOY_HD explicit WindowCopies(int thread)
      : row(thread / chunk_units),
        unit(thread % chunk_units),
        block(thread / slab_units),
        in_slab(thread % slab_units * unit_bytes),
        to(swizzled(thread / chunk_units, thread % chunk_units)) {}
};

/// How a tile's warps lie beside each other: down the rows first.
struct WarpsOfTile {
  int down, m, n;  // warps along m; rows and filters of one
  CONVOY_HD int row(int warp) const { return warp % down * m; }
  CONVOY_HD int filter(int warp) const { return warp / down * n; }
};

/// The rows that a lane gives ldmatrix, of the tile's pixels and filters. Blocks of ldmatrix: of
/// pixels rows 0-7, 8-15, and both again one unit on (lane >> 4); of filters 0-7 and that one unit
/// on, then 8-15 (lane >> 3 & 1). The units stand in the kernel: behind a function ptxas orders all
/// of it anew.
CONVOY_HD int pixel_row_of(int lane, int warp, const WarpsOfTile& warps) {
  return warps.row(warp) + lane % 16;
}
CONVOY_HD int filter_row_of(int lane, int warp, const WarpsOfTile& warps) {
  return warps.filter(warp) + lane % 8 + (lane >> 4) * 8;
}
/// An address of part 0 in another part, 0 or 1: its units are two on, which the swizzle makes one
/// bit of the address.
CONVOY_HD std::uint32_t of_part(std::uint32_t first, int part) {
  return first ^ static_cast<std::uint32_t>(part * product_bytes);
}

/// Where one of a thread's sums lies: row of the CTA's tile as the GEMM has it, and filter of the
/// tile.
struct WindowSumPlace {
  int row, filter;
  /// Number e of sums[ms][ns][4], of which a warp has `ns` products side by side.
  CONVOY_HD WindowSumPlace(int thread, int e, const WarpsOfTile& warps, bool pooled,
                           bool in_order) {
    const int lane = thread % 32, warp = thread / 32, ns = warps.n / 8;
    const int i = e / 4 / ns, j = e / 4 % ns, half = e / 2 % 2, odd = e % 2;
    row = warps.row(warp) + tile_row(i * 16 + half * 8 + lane / 4, pooled);
    const int column = j * 8 + lane % 4 * 2 + odd;
    filter = warps.filter(warp) + (column & ~31) + filter_of_row(column & 31, in_order);
  }
};

/// What a lane stores: of output o of its warp eight channels of one pixel.
struct WindowStore {
  int row, filter;  // of the warp's rows the first behind the pixel; of 32 filters the first
  CONVOY_HD WindowStore(int lane, int o, bool pooled)
      : row(pooled ? o * 32 + lane / 4 * 4 : o * 8 + lane / 4), filter(lane % 4 * 8) {}
};

}  // namespace convoy::cuda::sm80
