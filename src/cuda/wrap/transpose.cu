// transpose: matrices, 64 x 64 at a time through shared memory.
//
// Of 16-bit elements rows go in pairs and columns in pairs, so that shared memory holds words of
// two rows: a thread loads two columns of two rows and swaps the middle two of the four. Loads and
// stores are then whole words, 128 bytes a warp, wherever columns and rows are even.
#include <algorithm>
#include <cstdint>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/ptx/sync.cuh"
#include "cuda/wrap/transpose.hpp"

namespace convoy::cuda {
namespace {

constexpr int side = transpose_side, threads = 256, warps = threads / 32;
constexpr int pairs_a_warp = side / 2 / warps, columns_a_warp = side / warps;

struct TransposeParams {
  const void* from;
  void* to;
  unsigned tiles, tiles_across, tiles_down;
  int rows, columns;
  Index from_stride, to_stride;
};

/// Elements `at` and `at + 1`, of which `present` exist; with `Words` both or none.
template <bool Words>
__device__ __forceinline__ std::uint32_t load_two(const std::uint16_t* at, int present) {
  if constexpr (Words) return present > 0 ? *reinterpret_cast<const std::uint32_t*>(at) : 0;
  std::uint32_t two = 0;
  if (present > 0) two = at[0];
  if (present > 1) two |= static_cast<std::uint32_t>(at[1]) << 16;
  return two;
}

template <bool Words>
__device__ __forceinline__ void store_two(std::uint16_t* at, std::uint32_t two, int present) {
  if constexpr (Words) {
    if (present > 0) *reinterpret_cast<std::uint32_t*>(at) = two;
  } else {
    if (present > 0) at[0] = static_cast<std::uint16_t>(two);
    if (present > 1) at[1] = static_cast<std::uint16_t>(two >> 16);
  }
}

template <bool ColumnWords, bool RowWords>
__global__ void __launch_bounds__(threads) transpose(const TransposeParams p) {
  __shared__ std::uint32_t tile[side][side / 2 + 1];  // [column][pair of rows]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  ptx::grid_dependency_wait();
  for (unsigned t = blockIdx.x; t < p.tiles; t += gridDim.x) {
    const int column0 = static_cast<int>(t % p.tiles_across) * side,
              row0 = static_cast<int>(t / p.tiles_across % p.tiles_down) * side;
    const Index matrix = t / p.tiles_across / p.tiles_down;
    const auto* const from = static_cast<const std::uint16_t*>(p.from) + matrix * p.from_stride;
    auto* const to = static_cast<std::uint16_t*>(p.to) + matrix * p.to_stride;

    const int column = column0 + 2 * lane, columns_left = p.columns - column;
    std::uint32_t upper[pairs_a_warp], lower[pairs_a_warp];
#pragma unroll
    for (int i = 0; i < pairs_a_warp; ++i) {
      const int row = row0 + 2 * (warp * pairs_a_warp + i);
      const std::uint16_t* const at = from + static_cast<Index>(row) * p.columns + column;
      upper[i] = load_two<ColumnWords>(at, row < p.rows ? columns_left : 0);
      lower[i] = load_two<ColumnWords>(at + p.columns, row + 1 < p.rows ? columns_left : 0);
    }
#pragma unroll
    for (int i = 0; i < pairs_a_warp; ++i) {
      tile[2 * lane][warp * pairs_a_warp + i] = __byte_perm(upper[i], lower[i], 0x5410);
      tile[2 * lane + 1][warp * pairs_a_warp + i] = __byte_perm(upper[i], lower[i], 0x7632);
    }
    __syncthreads();
    const int row = row0 + 2 * lane;
#pragma unroll
    for (int i = 0; i < columns_a_warp; ++i) {
      const int c = warp * columns_a_warp + i;
      if (column0 + c < p.columns)
        store_two<RowWords>(to + static_cast<Index>(column0 + c) * p.rows + row, tile[c][lane],
                            p.rows - row);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(threads) transpose_words(const TransposeParams p) {
  __shared__ std::uint32_t tile[side][side + 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int column0 = static_cast<int>(blockIdx.x % p.tiles_across) * side,
            row0 = static_cast<int>(blockIdx.x / p.tiles_across % p.tiles_down) * side;
  const Index matrix = blockIdx.x / p.tiles_across / p.tiles_down;
  const auto* const from = static_cast<const std::uint32_t*>(p.from) + matrix * p.from_stride;
  auto* const to = static_cast<std::uint32_t*>(p.to) + matrix * p.to_stride;
  ptx::grid_dependency_wait();
#pragma unroll
  for (int i = warp; i < side; i += warps)
#pragma unroll
    for (int j = lane; j < side; j += 32)
      if (row0 + i < p.rows && column0 + j < p.columns)
        tile[i][j] = from[static_cast<Index>(row0 + i) * p.columns + column0 + j];
  __syncthreads();
#pragma unroll
  for (int j = warp; j < side; j += warps)
#pragma unroll
    for (int i = lane; i < side; i += 32)
      if (row0 + i < p.rows && column0 + j < p.columns)
        to[static_cast<Index>(column0 + j) * p.rows + row0 + i] = tile[i][j];
}

using TransposeKernel = void (*)(TransposeParams);
constexpr TransposeKernel kernels[2][2] = {{transpose<false, false>, transpose<false, true>},
                                           {transpose<true, false>, transpose<true, true>}};

bool words(const void* data, Index length, Index stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 4 == 0 && length % 2 == 0 && stride % 2 == 0;
}

}  // namespace

std::string transpose_ready() {
  if (const cudaError_t error = load(transpose_words); error != cudaSuccess)
    return describe(error, "loading transpose");
  for (const auto& row : kernels) {
    for (const TransposeKernel kernel : row) {
      if (const cudaError_t error = load(kernel); error != cudaSuccess)
        return describe(error, "loading transpose");
    }
  }
  return {};
}

std::string transpose_launch(const Transpose& what, bool overlap_previous,
                             cudaStream_t stream) noexcept {
  if (!may_transpose(what.batch, what.rows, what.columns))
    return "transpose: " + std::to_string(what.batch) + " matrices of " +
           std::to_string(what.rows) + " x " + std::to_string(what.columns) +
           ", at most 2^31 - 1 tiles of 64x64 fit. Use fewer images.";
  const Index across = math::ceil_div(what.columns, side), down = math::ceil_div(what.rows, side);
  const Index tiles = what.batch * across * down;
  if (tiles == 0) return {};
  TransposeParams p{};
  p.from = what.from, p.to = what.to;
  p.tiles = static_cast<unsigned>(tiles);
  p.tiles_across = static_cast<unsigned>(across);
  p.tiles_down = static_cast<unsigned>(down);
  p.rows = static_cast<int>(what.rows);
  p.columns = static_cast<int>(what.columns);
  p.from_stride = what.from_stride;
  p.to_stride = what.to_stride;
  const bool column_words = words(what.from, what.columns, what.from_stride),
             row_words = words(what.to, what.rows, what.to_stride);
  const TransposeKernel kernel =
      what.element_bytes == 4 ? transpose_words : kernels[column_words][row_words];
  const cudaError_t error = launch(kernel,
                                   {.grid = static_cast<int>(tiles),
                                    .threads = threads,
                                    .stream = stream,
                                    .overlap_previous = overlap_previous},
                                   p);
  if (error == cudaSuccess) return {};
  return describe(error, "launching transpose");
}

}  // namespace convoy::cuda
