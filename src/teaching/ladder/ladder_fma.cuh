// Rung 9 without Tensor Cores: everything else as it is, the products by fused multiply-adds. What
// WMMA is worth when nothing else holds it back.
#pragma once

#include "teaching/ladder/ladder_9_bounds.cuh"

namespace convoy::cuda::teaching {

/// A warp's sums, which its lanes share: 4 lanes down and 8 across, each with every fourth pixel
/// and every eighth filter. In the order r, s, c, one product at a time.
template <class Tile>
class FmaSums {
 public:
  using Sum = float;
  static constexpr int lanes_across = 8, lanes_down = warp_size / lanes_across;

  __device__ __forceinline__ void multiply(const Slice<Tile>& slice) {
#pragma unroll 1
    for (int d = 0; d < slice_depth; d += 2) {
      float2 b[across];
#pragma unroll
      for (int j = 0; j < across; ++j)
        b[j] = __half22float2(*reinterpret_cast<const __half2*>(&slice.filters[filter(j)][d]));
#pragma unroll
      for (int i = 0; i < down; ++i) {
        const float2 a =
            __half22float2(*reinterpret_cast<const __half2*>(&slice.pixels[pixel(i)][d]));
#pragma unroll
        for (int j = 0; j < across; ++j)
          sums_[i][j] = fmaf(a.y, b[j].y, fmaf(a.x, b[j].x, sums_[i][j]));
      }
    }
  }
  /// Through the patch too, a square at a time.
  template <class Write>
  __device__ __forceinline__ void write(const LadderParams& g, int m, int k, Sum* patch) {
#pragma unroll
    for (int i = 0; i < Tile::down; ++i)
#pragma unroll
      for (int j = 0; j < Tile::across; ++j) {
#pragma unroll
        for (int u = 0; u < side / lanes_down; ++u)
#pragma unroll
          for (int v = 0; v < side / lanes_across; ++v)
            patch[(lane() / lanes_across + u * lanes_down) * side + lane() % lanes_across +
                  v * lanes_across] =
                sums_[i * (side / lanes_down) + u][j * (side / lanes_across) + v];
        write_patch<Write>(g, m + first_pixel() + i * side, k + first_filter() + j * side, patch);
      }
  }

 private:
  static constexpr int down = Tile::down * side / lanes_down,
                       across = Tile::across * side / lanes_across;
  static __device__ __forceinline__ int warp() {
    return static_cast<int>(threadIdx.x) / warp_size;
  }
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % warp_size;
  }
  static __device__ __forceinline__ int first_pixel() {
    return warp() / Tile::warps_across * Tile::down * side;
  }
  static __device__ __forceinline__ int first_filter() {
    return warp() % Tile::warps_across * Tile::across * side;
  }
  static __device__ __forceinline__ int pixel(int i) {
    return first_pixel() + lane() / lanes_across + i * lanes_down;
  }
  static __device__ __forceinline__ int filter(int j) {
    return first_filter() + lane() % lanes_across + j * lanes_across;
  }

  float sums_[down][across] = {};
};

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::ctas)
    ladder_fma(const __grid_constant__ LadderParams g) {
  double_buffered<Tile, FmaSums, MaskedCopy<Tile, uint4>, WriteFused>(g);
}

}  // namespace convoy::cuda::teaching
