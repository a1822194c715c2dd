// Rung 5: 16-byte loads. A unit of a copy is eight channels, not one: an eighth of the loads, of
// the stores to shared memory, and of the index arithmetic for them.
//
// That takes C in multiples of 8 and pixels on 16 bytes. Where C is none, rung 4 runs.
#pragma once

#include "teaching/ladder/ladder_4_buffered.cuh"

namespace convoy::cuda::teaching {

template <class Tile>
__global__ void ladder_5_vector(const __grid_constant__ LadderParams g) {
  // NEW: uint4, 16 bytes, for __half.
  double_buffered<Tile, SquareSums, Copy<Tile, uint4>, WritePre>(g);
}

}  // namespace convoy::cuda::teaching
