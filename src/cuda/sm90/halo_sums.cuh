// halo with f32 sums, and the bias, as its output: what a pass over them takes on, as neurons do.
//
// A pixel's 64 channels are two rows of 128 bytes, which lie in two boxes for TMA: a part of a tile
// has as many bytes as one of 16 bits, for half of the pixels.
#pragma once

#include "cuda/ptx/shared.cuh"
#include "cuda/sm90/halo_launch.cuh"
#include "cuda/sm90/staged_sums.hpp"

namespace convoy::cuda::sm90 {

template <int N>
constexpr int sums_pieces = store_pieces(N, true);

/// Writes a part of the tile for its TMA stores. The lanes of a store lie in 32 banks.
template <class T, int N, int I, int Part>
__device__ __forceinline__ void write_sums(const Sum<T> (&d)[I][N / 2], const float (&bias)[2],
                                           std::uint32_t staging) {
  constexpr int pieces = sums_pieces<N>, pixels = N / pieces, i = Part / pieces,
                first = Part % pieces * (pixels / 2);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int channel = halo_channel(lane, warp), pixel = 2 * (lane % 4);
  // Of the first group of eight pixels: of either pixel and either channel of a thread.
  std::uint32_t at[4];
#pragma unroll
  for (int e = 0; e < 4; ++e)
    at[e] = staged_sum_at(staging, pixels, channel + e / 2 * 8, pixel + e % 2);
#pragma unroll
  for (int e = 0; e < pixels / 2; ++e)
    ptx::store_shared(at[e % 4] + e / 4 * (8 * row_bytes),
                      PostOps::biased(d[i][first + e], PostOps::addend(bias[e / 2 % 2])));
}

template <class T, int N, int I>
requires HaloAccumulator<N, I, PoolKind::none, row_steps> __global__ void __launch_bounds__(
    halo_threads, 1) halo_sums(const __grid_constant__ HaloParams p) {
  constexpr int pieces = sums_pieces<N>, half = N / pieces * row_bytes;
  run_cta<T, N, I, row_steps>(p, [&](const Sum<T>(&d)[I][N / 2], const float(&bias)[2],
                                     const Place& at, std::uint32_t staging, int g) {
    store_in_parts<I * pieces, pieces>(
        p, at, staging, g,
        [&]<int Part>(std::uint32_t buffer) { write_sums<T, N, I, Part>(d, bias, buffer); },
        [&](std::uint32_t buffer, int k, int x, int y, int n) {
          store_box(p, at, buffer, k, x, y, n);
          store_box(p, at, buffer + half, k + block_channels / 2, x, y, n);
        });
  });
}

/// Null where none is compiled.
template <class T>
HaloKernel find_halo_sums(Accumulator wanted) {
  HaloKernel found = nullptr;
  [&]<std::size_t... Entry>(std::index_sequence<Entry...>) {
    constexpr auto& all = sums_accumulators;
    (void)((all[Entry] == wanted &&
            ((found = halo_sums<T, all[Entry].n, all[Entry].instructions>), true)) ||
           ...);
  }
  (std::make_index_sequence<sums_accumulators.size()>{});
  return found;
}

}  // namespace convoy::cuda::sm90
