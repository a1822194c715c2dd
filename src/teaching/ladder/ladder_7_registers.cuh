// Rung 7: register tiles. A warp keeps not one square of sums but several, in registers: a fragment
// that it has read from shared memory serves all squares of its row or column.
//
// Of 4x2 squares, six fragments are read for eight products; of one, two for one. With as many sums
// a thread, half the warps hold four times the tile, so that a value that was loaded from memory
// serves twice as many products too.
#pragma once

#include "teaching/ladder/ladder_6_masks.cuh"

namespace convoy::cuda::teaching {

/// NEW: a warp's squares of sums. What SquareSums is for one.
template <class Tile, class SumType>
class SquaresSums {
 public:
  using Sum = SumType;
  __device__ SquaresSums() {
#pragma unroll
    for (auto& row : sums_)
#pragma unroll
      for (auto& square : row) wmma::fill_fragment(square, Sum(0.0f));
  }

  __device__ __forceinline__ void multiply(const Slice<Tile>& slice) {
#pragma unroll
    for (int d = 0; d < slice_depth; d += side) {
      FiltersFragment b[Tile::across];
#pragma unroll
      for (int j = 0; j < Tile::across; ++j)
        wmma::load_matrix_sync(b[j], &slice.filters[across(j)][d], slice.pitch);
#pragma unroll
      for (int i = 0; i < Tile::down; ++i) {
        PixelsFragment a;
        wmma::load_matrix_sync(a, &slice.pixels[down(i)][d], slice.pitch);
#pragma unroll
        for (int j = 0; j < Tile::across; ++j) wmma::mma_sync(sums_[i][j], a, b[j], sums_[i][j]);
      }
    }
  }
  template <class Write>
  __device__ __forceinline__ void write(const LadderParams& g, int m, int k, Sum* patch) {
#pragma unroll
    for (int i = 0; i < Tile::down; ++i)
#pragma unroll
      for (int j = 0; j < Tile::across; ++j)
        write_square<Write>(g, m + down(i), k + across(j), sums_[i][j], patch);
  }

 private:
  static __device__ __forceinline__ int warp() {
    return static_cast<int>(threadIdx.x) / warp_size;
  }
  static __device__ __forceinline__ int down(int i) {
    return (warp() / Tile::warps_across * Tile::down + i) * side;
  }
  static __device__ __forceinline__ int across(int j) {
    return (warp() % Tile::warps_across * Tile::across + j) * side;
  }

  SumsFragment<Sum> sums_[Tile::down][Tile::across];
};
template <class Tile>
using RegisterSums = SquaresSums<Tile, float>;

template <class Tile>
__global__ void ladder_7_registers(const __grid_constant__ LadderParams g) {
  double_buffered<Tile, RegisterSums, MaskedCopy<Tile, uint4>, WritePre>(g);
}

}  // namespace convoy::cuda::teaching
