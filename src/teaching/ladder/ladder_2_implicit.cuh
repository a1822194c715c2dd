// Rung 2: implicit GEMM. The matrix of im2col is never written: when a square of it is needed, its
// elements are looked up in x.
//
// That saves a launch, R*S times x of memory, and writing and reading it. What it costs is index
// arithmetic: each element's pixel and tap, at each access.
#pragma once

#include "teaching/ladder/ladder_1_wmma.cuh"

namespace convoy::cuda::teaching {

__global__ void ladder_2_implicit(const __grid_constant__ LadderParams g) {
  extern __shared__ __align__(32) float patches[];  // 256 a warp
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int square = static_cast<int>(blockIdx.x) * warps_alone + warp;
  const int across = blocks_of(g.k, side);
  const int m = square / across * side, k = square % across * side;
  if (m >= g.m) return;

  const int depth = g.depth(), lane = static_cast<int>(threadIdx.x) % warp_size;
  const __half* const filters = g.w + static_cast<Index>(k) * depth;
  __half* const pixels = reinterpret_cast<__half*>(patches + warp * side * side);
  SumsFragment<float> sums;
  wmma::fill_fragment(sums, 0.0f);
  for (Tap tap; tap.r < g.r; tap.next(g, side)) {
    // NEW: the warp gathers the square of pixels itself. A fragment is filled from memory alone, so
    // the square passes through shared memory that no other warp reads.
    for (int i = lane; i < side * side; i += warp_size)
      pixels[i] = matrix_at<__half>(g, m + i / side, tap.r, tap.s, tap.c + i % side);
    __syncwarp();
    PixelsFragment a;
    FiltersFragment b;
    wmma::load_matrix_sync(a, pixels, side);
    wmma::load_matrix_sync(b, filters + (tap.r * g.s + tap.s) * g.channels + tap.c, depth);
    wmma::mma_sync(sums, a, b, sums);
    __syncwarp();
  }
  write_square<WritePre>(g, m, k, sums, patches + warp * side * side);
}

}  // namespace convoy::cuda::teaching
