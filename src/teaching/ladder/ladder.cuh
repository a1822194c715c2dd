// What the rungs of the ladder have in common and none of them is about: where pixels lie, walking
// the taps, writing sums.
//
// The convolution is a product of matrices. A row m of the first is an output pixel, a column a
// product (r, s, c) of it; the second has a row for each filter. WMMA multiplies squares of 16.
#pragma once

#include <mma.h>

#include "cuda/activate.cuh"
#include "teaching/ladder/ladder_params.hpp"

namespace convoy::cuda::teaching {

namespace wmma = nvcuda::wmma;

constexpr int side = 16;                      // of a square that WMMA multiplies
constexpr int slice_depth = ladder_channels;  // products of an output that a CTA takes at once
constexpr int warp_size = 32;

using PixelsFragment = wmma::fragment<wmma::matrix_a, side, side, side, __half, wmma::row_major>;
// Column-major: a filter's products lie side by side.
using FiltersFragment = wmma::fragment<wmma::matrix_b, side, side, side, __half, wmma::col_major>;
template <class Sum>
using SumsFragment = wmma::fragment<wmma::accumulator, side, side, side, Sum>;

__host__ __device__ constexpr int blocks_of(int all, int block) {
  return (all + block - 1) / block;
}

/// Neighbouring channels that are loaded at once: of __half one, of uint4 eight.
template <class Unit>
constexpr int channels_of = static_cast<int>(sizeof(Unit) / sizeof(__half));

/// Element (m, (r, s, c)) of the first matrix: the channels of x that a tap of a pixel reads, zeros
/// where that is padding or beyond the matrix.
template <class Unit>
__device__ __forceinline__ Unit matrix_at(const LadderParams& g, int m, int r, int s, int c) {
  if (m < g.m && c < g.c) {
    const auto [n, p, q] = g.in.at(m);
    const int h = g.rows.at(p, r), w = g.columns.at(q, s);
    if (g.rows.inside(h) && g.columns.inside(w))
      return *reinterpret_cast<const Unit*>(g.x + n * g.x_image + h * g.x_row + w * g.x_pixel + c);
  }
  return Unit{};
}

/// A place in the order of summation: taps r, then s, then channels.
struct Tap {
  int r = 0, s = 0, c = 0;
  __device__ __forceinline__ void next(const LadderParams& g, int channels) {
    c += channels;
    if (c < g.c) return;
    c = 0;
    if (++s < g.s) return;
    s = 0;
    ++r;
  }
};

__device__ __forceinline__ float with_bias(const LadderParams& g, int k, float sum) {
  return sum + (g.bias != nullptr ? positive_zero(g.bias[k]) : 0.0f);
}
__device__ __forceinline__ __half* pixel_of_y(const LadderParams& g, int m) {
  const auto [n, p, q] = g.out.at(m);
  return g.y + n * g.y_image + p * g.y_row + q * g.y_pixel;
}

/// Eight neighbouring filters of one pixel, from k on.
struct Eight {
  float v[8];

  __device__ __forceinline__ void add_bias(const LadderParams& g, int k) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (k + i < g.k) v[i] = with_bias(g, k + i, v[i]);
  }
  __device__ __forceinline__ void activate(const LadderParams& g) {
#pragma unroll
    for (float& one : v) one = cuda::activate(g.activation, one);
  }
  /// `pixel`: its channel 0. Rounds.
  __device__ __forceinline__ void store(const LadderParams& g, __half* pixel, int k) const {
    alignas(16) __half2 pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
    if (g.wide_y && k + 8 <= g.k) {
      *reinterpret_cast<uint4*>(pixel + k) = *reinterpret_cast<const uint4*>(pairs);
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (k + i < g.k) pixel[k + i] = i % 2 == 0 ? pairs[i / 2].x : pairs[i / 2].y;
  }
  __device__ __forceinline__ void load(const LadderParams& g, const __half* pixel, int k) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = k + i < g.k ? __half2float(pixel[k + i]) : 0.0f;
  }
};

/// How a kernel ends that does not fuse: conv + bias is written, the activation is another launch.
struct WritePre {
  static __device__ __forceinline__ void write(const LadderParams& g, int m, int k, Eight sums) {
    sums.add_bias(g, k);
    sums.store(g, pixel_of_y(g, m), k);
  }
};

/// Writes a warp's square of sums from `patch`, 256 values of shared memory. m and k: its first
/// pixel and filter. A lane has eight neighbouring filters of a pixel, so that it looks the pixel
/// up once.
template <class Write, class Sum>
__device__ __forceinline__ void write_patch(const LadderParams& g, int m, int k, const Sum* patch) {
  __syncwarp();
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int row = lane / 2, column = lane % 2 * 8;
  Eight eight;
#pragma unroll
  for (int i = 0; i < 8; ++i) eight.v[i] = static_cast<float>(patch[row * side + column + i]);
  if (m + row < g.m && k + column < g.k) Write::write(g, m + row, k + column, eight);
  __syncwarp();
}
/// The same of a fragment. Which lane holds which of its sums is WMMA's secret, so that they have
/// to pass through the patch.
template <class Write, class Sum>
__device__ __forceinline__ void write_square(const LadderParams& g, int m, int k,
                                             const SumsFragment<Sum>& sums, Sum* patch) {
  wmma::store_matrix_sync(patch, sums, side, wmma::mem_row_major);
  write_patch<Write>(g, m, k, patch);
}

/// The launch behind a kernel that does not fuse: reads conv + bias where that kernel wrote it
/// (`g.y`), writes y and the second output. A thread takes eight channels of a pixel.
struct LadderReluParams {
  LadderParams g;
  __half* y;
  Index y_image, y_row, y_pixel;
};
__global__ void ladder_relu(const __grid_constant__ LadderReluParams of) {
  const LadderParams& g = of.g;
  const int blocks = blocks_of(g.k, 8);
  const Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x;
  if (i >= static_cast<Index>(g.m) * blocks) return;
  const int k = static_cast<int>(i % blocks) * 8, m = static_cast<int>(i / blocks);
  Eight eight;
  eight.load(g, pixel_of_y(g, m), k);
  eight.activate(g);
  const auto [n, p, q] = g.out.at(m);
  eight.store(g, of.y + n * of.y_image + p * of.y_row + q * of.y_pixel, k);
  if (g.act != nullptr) eight.store(g, g.act + static_cast<Index>(m) * g.k, k);
}

}  // namespace convoy::cuda::teaching
