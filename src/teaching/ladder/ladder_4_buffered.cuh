// Rung 4: double buffering. While the warps multiply one slice, the next is on its way.
//
// A load from memory takes hundreds of cycles, and a thread waits only where it uses the value. So
// the loads of the next slice are issued before the products and their values stored behind them,
// into a second buffer that nobody is reading. One wait a slice is left of two.
#pragma once

#include "teaching/ladder/ladder_3_shared.cuh"

namespace convoy::cuda::teaching {

/// NEW: the loop. Two slices in shared memory, one being read and one being written.
template <class Tile, template <class> class Sums, class CopyPiece, class Write>
__device__ __forceinline__ void double_buffered(const LadderParams& g) {
  extern __shared__ __align__(32) unsigned char memory[];
  auto* const slices = reinterpret_cast<Slice<Tile>*>(memory);
  const Corner<Tile> at(g);
  CopyPiece copy(g, at.m, at.k);
  Sums<Tile> sums;
  Tap tap;
  copy.fetch(g, tap, 0);
  copy.store(slices[0]);
  __syncthreads();
  const int count = g.depth() / slice_depth;
  for (int number = 0; number < count; ++number) {
    const bool more = number + 1 < count;
    tap.next(g, slice_depth);
    if (more) copy.fetch(g, tap, number + 1);
    sums.multiply(slices[number % 2]);
    if (more) copy.store(slices[(number + 1) % 2]);
    __syncthreads();
  }
  sums.template write<Write>(g, at.m, at.k, patch_of_warp<typename Sums<Tile>::Sum>(memory));
}

template <class Tile>
__global__ void ladder_4_buffered(const __grid_constant__ LadderParams g) {
  double_buffered<Tile, SquareSums, Copy<Tile, __half>, WritePre>(g);
}

}  // namespace convoy::cuda::teaching
