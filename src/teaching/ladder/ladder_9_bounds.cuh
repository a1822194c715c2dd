// Rung 9: launch bounds and occupancy. The compiler is told how many threads a CTA has and how many
// CTAs should share a multiprocessor, and gives each thread so many registers at most.
//
// While one CTA waits at its barrier or for memory, another multiplies. The document asks for four
// CTAs of 256 threads: 64 registers a thread, which the sums of a 64x32 warp tile fill alone. Two
// leave 128.
#pragma once

#include "teaching/ladder/ladder_8_fused.cuh"

namespace convoy::cuda::teaching {

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::ctas)  // NEW
    ladder_9_bounds(const __grid_constant__ LadderParams g) {
  double_buffered<Tile, RegisterSums, MaskedCopy<Tile, uint4>, WriteFused>(g);
}

}  // namespace convoy::cuda::teaching
