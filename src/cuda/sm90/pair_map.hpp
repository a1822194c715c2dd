// Where the pixels of the middle tile lie, for the host's tests and for the kernel.
//
// The columns of a GEMM may stand in any order, so they stand by windows of the second pool, four
// windows to 16 rows: rows 16*(w/4) + 2*(w%4) hold window w's upper two pixels and the rows 8 on
// its lower two. A thread of the second GEMM then holds whole windows, as in the first.
#pragma once

#include "math/host_device.hpp"

namespace convoy::cuda::sm90 {

/// Columns of the second GEMM: the middle pixels of a warpgroup's tile, in whole 16s.
CONVOY_HD constexpr int middle_columns(int n, int instructions) {
  return (n * instructions / 4 + 15) / 16 * 16;
}

/// Row of the middle pixel at column `c` of a fragment of the first stage (PoolKind::pixels) whose
/// leftmost window is number `window`, an even one. Of a fragment's eight columns, c/2 is x and c%2
/// is y.
CONVOY_HD int middle_row(int window, int c) {
  const int w = window + (c >> 2);
  return (w >> 2) * 16 + (c & 1) * 8 + 2 * (w & 3) + ((c >> 1) & 1);
}

/// Row of the stored tile that takes the middle pixel of row `row` where the second stage does not
/// pool: pixels x fastest, windows x fastest and `1 << log2_across` of them across.
CONVOY_HD int unpooled_row(int row, int log2_across) {
  const int w = (row >> 4) * 4 + ((row & 7) >> 1), across = 1 << log2_across;
  const int x = 2 * (w & (across - 1)) + (row & 1), y = 2 * (w >> log2_across) + ((row >> 3) & 1);
  return y * 2 * across + x;
}

/// Row of the stored tile, which is the window's number, at column `c` of fragment `f` of the
/// second stage where it pools.
CONVOY_HD int pooled_row(int f, int c) {
  return 8 * f + 4 * (c & 1) + (c >> 1);
}

}  // namespace convoy::cuda::sm90
