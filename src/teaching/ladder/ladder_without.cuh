// Rung 9 with one optimisation taken away, for `convoy ladder`: the piece of a rung below in its
// place, all else as it is. But without 16-byte loads a thread needs the registers of a second CTA.
#pragma once

#include "teaching/ladder/ladder_9_bounds.cuh"

namespace convoy::cuda::teaching {

template <class Tile, template <class> class Sums, class CopyPiece, class Write>
__global__ void __launch_bounds__(Tile::threads, Tile::ctas)
    ladder_without(const __grid_constant__ LadderParams g) {
  double_buffered<Tile, Sums, CopyPiece, Write>(g);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::ctas)
    ladder_without_buffering(const __grid_constant__ LadderParams g) {
  slice_by_slice<Tile, RegisterSums, MaskedCopy<Tile, uint4>, WriteFused>(g);
}

}  // namespace convoy::cuda::teaching
