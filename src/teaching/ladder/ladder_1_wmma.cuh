// Rung 1: Tensor Cores. A warp multiplies squares of 16x16 at once, and adds them in fp32.
//
// They want matrices, so the convolution is made one: a first launch (im2col) copies what every tap
// of every pixel reads into a matrix of its own, R*S times as large as x. Both matrices are read
// from memory again and again, a square at a time.
#pragma once

#include "teaching/ladder/ladder.cuh"

namespace convoy::cuda::teaching {

/// A CTA copies a row: what one pixel's taps read. Rows up to a multiple of 16 are zeros.
__global__ void ladder_1_im2col(const __grid_constant__ LadderParams g) {
  const int m = static_cast<int>(blockIdx.x), depth = g.depth();
  const math::ConvTaps<int> taps{g.s, g.channels};
  for (int d = static_cast<int>(threadIdx.x); d < depth; d += static_cast<int>(blockDim.x)) {
    const auto [r, s, c] = taps.at(d);
    g.matrix[static_cast<Index>(m) * depth + d] = matrix_at<__half>(g, m, r, s, c);
  }
}

constexpr int warps_alone = 4;  // of a CTA whose warps share nothing

__global__ void ladder_1_wmma(const __grid_constant__ LadderParams g) {
  extern __shared__ __align__(32) float patches[];  // 256 a warp
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int square = static_cast<int>(blockIdx.x) * warps_alone + warp;
  const int across = blocks_of(g.k, side);
  const int m = square / across * side, k = square % across * side;
  if (m >= g.m) return;

  // NEW: a warp's 16 pixels x 16 filters, 16 products of each in one instruction.
  const int depth = g.depth();
  const __half* const pixels = g.matrix + static_cast<Index>(m) * depth;
  const __half* const filters = g.w + static_cast<Index>(k) * depth;
  SumsFragment<float> sums;
  wmma::fill_fragment(sums, 0.0f);
  for (int d = 0; d < depth; d += side) {
    PixelsFragment a;
    FiltersFragment b;
    wmma::load_matrix_sync(a, pixels + d, depth);
    wmma::load_matrix_sync(b, filters + d, depth);
    wmma::mma_sync(sums, a, b, sums);
  }
  write_square<WritePre>(g, m, k, sums, patches + warp * side * side);
}

}  // namespace convoy::cuda::teaching
