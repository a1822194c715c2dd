// Rung 8: fused bias and ReLU. The activation is applied while sums are in registers, and every
// output that was asked for is written then: y, and for training conv + bias (`keep(pre)`) beside
// it. The rungs below write conv + bias, and a second launch reads it and writes y.
#pragma once

#include "teaching/ladder/ladder_7_registers.cuh"

namespace convoy::cuda::teaching {

/// NEW: how sums are written.
struct WriteFused {
  static __device__ __forceinline__ void write(const LadderParams& g, int m, int k, Eight sums) {
    const Index dense = static_cast<Index>(m) * g.k;
    sums.add_bias(g, k);
    if (g.pre != nullptr) sums.store(g, g.pre + dense, k);
    sums.activate(g);
    sums.store(g, pixel_of_y(g, m), k);
    if (g.act != nullptr) sums.store(g, g.act + dense, k);
  }
};

template <class Tile>
__global__ void ladder_8_fused(const __grid_constant__ LadderParams g) {
  double_buffered<Tile, RegisterSums, MaskedCopy<Tile, uint4>, WriteFused>(g);
}

}  // namespace convoy::cuda::teaching
