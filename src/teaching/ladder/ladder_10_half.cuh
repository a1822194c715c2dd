// Rung 10: sums in fp16, as the document's kernels have them. Not a gain for nothing: a sum keeps
// 11 bits after every 16 products, and beyond 65,504 it is infinite. Compare `error` in `convoy
// ladder`.
//
// Squares of sums take half the registers; on Turing's gaming cards the Tensor Cores also run twice
// as fast, on Hopper as fast as with fp32 sums.
#pragma once

#include "teaching/ladder/ladder_9_bounds.cuh"

namespace convoy::cuda::teaching {

/// NEW: the type of a sum.
template <class Tile>
using HalfSums = SquaresSums<Tile, __half>;

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::ctas)
    ladder_10_half(const __grid_constant__ LadderParams g) {
  double_buffered<Tile, HalfSums, MaskedCopy<Tile, uint4>, WriteFused>(g);
}

}  // namespace convoy::cuda::teaching
