// first: y = pool(act(conv(norm(x), w) + bias)) for C <= 4 on Hopper, from top to bottom.
//
// Two producer warpgroups store a brick each of the image in shared memory, four channels a pixel,
// normalised and rounded; where rows are multiples of 16 bytes, TMA has brought the brick as it is,
// and with it the zeros around the image. There is no im2col: without swizzle a core matrix of
// wgmma is eight rows of 16 bytes. A unit of 16 bytes is two neighbouring pixels, unit i of a row
// begins at pixel stride*i, and output pixel i reads units i, i + 2/stride, ...: eight output
// pixels and a pair of taps are 128 bytes in a row, and the next taps the same memory further on.
//
// A tile is 16 output pixels wide: accumulators d[0] hold its left eight columns, d[1] the others.
//
// Two consumer warpgroups take turns over channel blocks (K > 64), or each over its own runs of
// tiles: windows of three columns then find the last column of the tile before in registers. Sum:
// r, then s in fours.
#pragma once

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/first_load.cuh"
#include "cuda/sm90/shared_memory.hpp"

namespace convoy::cuda::sm90 {

constexpr int first_threads =
    4 * warpgroup_threads;  // two warpgroups of consumers, two of producers

// ---------------------------------------------------------------------------------- the pools

/// Fragments of a warpgroup's tile: d[h][4j + 2i + e] is column 8h + 2*(lane%4) + e of row j
/// and channel lane/4 + 8i. A pooled one's two columns are four apart, one from each half.
template <class T, int N, FirstPool Pool>
struct FirstFragments {
  static constexpr int rows = N / 8;
  static constexpr int count = Pool == FirstPool::none   ? 2 * rows
                               : Pool == FirstPool::max2 ? rows / 2
                                                         : (rows - 1) / 2;
  static constexpr int carried = Pool == FirstPool::max3 ? count : 0;
  /// For max3 the maxima of the column before the tile, of channels lane/4 and lane/4 + 8, in the
  /// last thread of the four; `value` leaves those of the tile's last column.
  using Carry = Sum<T>[carried + 1][2];

  static __device__ __forceinline__ Fragment<Sum<T>> value(const Sum<T> (&d)[2][N / 2],
                                                           Carry& carry, int f) {
    if constexpr (Pool == FirstPool::none) {
      const Sum<T>(&v)[N / 2] = d[f & 1];
      const int a = 4 * (f >> 1);
      return {{v[a], v[a + 1]}, {v[a + 2], v[a + 3]}};
    } else if constexpr (Pool == FirstPool::max2) {
      const int a = 8 * f, b = a + 4;
      const auto window = [&](const Sum<T>(&v)[N / 2], int i) {
        return max4(v[a + i], v[a + i + 1], v[b + i], v[b + i + 1]);
      };
      return {{window(d[0], 0), window(d[1], 0)}, {window(d[0], 2), window(d[1], 2)}};
    } else {
      // A window's first column is the second of the thread before; for the first of the four that
      // is where the left half ends, or the tile before.
      const auto column = [&](int h, int i) {
        const Sum<T>(&v)[N / 2] = d[h];
        const int a = 8 * f + i;
        return ptx::max_nan(ptx::max_nan(v[a], v[a + 4]), v[a + 8]);
      };
      const int lane = threadIdx.x % 32, before = (lane & ~3) | ((lane - 1) & 3);
      const bool last = lane % 4 == 3;
      const auto windows = [&](int i, Sum<T>(&out)[2]) {
        const Sum<T> left = column(0, i + 1), right = column(1, i + 1);
        const Sum<T> before_left = __shfl_sync(0xFFFFFFFF, last ? carry[f][i / 2] : left, before),
                     before_right = __shfl_sync(0xFFFFFFFF, last ? left : right, before);
        carry[f][i / 2] = right;
        out[0] = ptx::max_nan(ptx::max_nan(left, column(0, i)), before_left);
        out[1] = ptx::max_nan(ptx::max_nan(right, column(1, i)), before_right);
      };
      Fragment<Sum<T>> fragment;
      windows(0, fragment.low);
      windows(2, fragment.high);
      return fragment;
    }
  }
  /// Row in the staged tile, whose first `skip` columns go to the spare row.
  static __device__ __forceinline__ int row(int f, int c, int skip) {
    const int column = (c >> 1) + 4 * (c & 1);
    if constexpr (Pool == FirstPool::none)
      return f * 8 + c;
    else if constexpr (Pool == FirstPool::max2)
      return f * 8 + column;
    else
      return column < skip ? count * 8 : f * (8 - skip) + column - skip;
  }
};

/// Pixels outside the convolution's plane must not win a window.
template <class T, int N>
__device__ __forceinline__ void mask_outside(const FirstParams& p, const Brick& b,
                                             Sum<T> (&d)[2][N / 2]) {
  if (b.y < 0) {  // -1: the pool's padding
#pragma unroll
    for (int i = 0; i < 8; ++i) d[i >> 2][i & 3] = -INFINITY;
  }
  if (b.x + 16 <= p.q && b.y + N / 8 <= p.p) return;
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const bool row = b.y + j < p.p;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int x = b.x + 8 * (i >> 2) + threadIdx.x % 4 * 2 + (i & 1);
      if (!row || x >= p.q) d[i >> 2][4 * j + (i & 3)] = -INFINITY;
    }
  }
}

// ---------------------------------------------------------------------------------- the kernel

template <class T, int N, FirstPool Pool>
__device__ __forceinline__ void first_consume(const FirstParams& p, std::uint32_t bricks,
                                              std::uint32_t weights, std::uint32_t staging,
                                              const FirstBarriers& bar, int g) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int steps = p.at.row_taps / 4, block_bytes = p.r * steps * 2048;
  // With one channel block the warpgroups take runs of tiles, else blocks of the same brick.
  const bool by_brick = p.at.k_blocks == 1;
  const std::uint64_t a_base = ptx::descriptor(ptx::plain_descriptor(0, 1024, 128), weights);
  const std::uint64_t b_base =
      ptx::descriptor(ptx::plain_descriptor(0, p.at.k_stride, p.stride * p.at.pitch), bricks);
  const std::uint32_t a_low = static_cast<std::uint32_t>(a_base), a_high = a_base >> 32,
                      b_low = static_cast<std::uint32_t>(b_base), b_high = b_base >> 32;
  const std::uint32_t next_step = p.at.step_stride >> 4,
                      next_row = (p.at.pitch >> 4) - (steps - 1) * next_step;
  const int stride = by_brick ? 2 : 1, first = by_brick ? g : 0;
  using F = FirstFragments<T, N, Pool>;
  typename F::Carry carry;
  Ring at{first};
  TileWalk tile{static_cast<int>(blockIdx.x + first * gridDim.x),
                static_cast<int>(stride * gridDim.x)};
  for (int turn = 0; tile.run < p.runs; tile.advance(p), ++turn) {
    const Brick b = brick<Pool>(p, tile);
    ptx::mbarrier_wait(bar.bricks.full(at.slot), at.parity);
    // Turns keep one warpgroup's epilogue under the other's math; left alone, both would do math at
    // half speed and then both none. The first warpgroup's last run may be one more than the
    // other's.
    const bool alone = g == 0 && tile.tile > 0 && tile.run + gridDim.x >= p.runs;
    if (by_brick && !alone && (g == 1 || turn > 0))
      ptx::mbarrier_wait(bar.turn(g), (turn + 1 - g) & 1);
    for (int block = by_brick ? 0 : g; block < p.at.k_blocks; block += by_brick ? 1 : 2) {
      const int channel = block * 64 + 16 * warp + lane / 4;
      float bias[2];
      load_bias(p.post, channel, bias);
      if (tile.tile == 0) {
#pragma unroll
        for (auto& unit : carry) unit[0] = unit[1] = -INFINITY;
      }
      Sum<T> d[2][N / 2];
      ptx::touch(d[0]);
      ptx::touch(d[1]);
      // Descriptors' low halves, in 16 bytes; see Walk in halo.cuh for the shuffle.
      std::uint32_t a = __shfl_sync(0xFFFFFFFF, a_low + (block * block_bytes >> 4), 0);
      std::uint32_t x = __shfl_sync(0xFFFFFFFF, b_low + (at.slot * p.at.brick_bytes >> 4), 0);
      int keep = 0, step = 0;
      // Several k16 steps under a fence: one alone does not cover what lies between two.
      const auto multiply = [&]<int Count>() {
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < Count; ++i) {
          ptx::Wgmma<T, N>::mma(d[0], ptx::descriptor_of(a, a_high), ptx::descriptor_of(x, b_high),
                                keep);
          ptx::Wgmma<T, N>::mma(d[1], ptx::descriptor_of(a, a_high),
                                ptx::descriptor_of(x + 8, b_high), keep);
          keep = 1;
          a += 2048 >> 4;
          const bool row_ends = ++step == steps;
          x += row_ends ? next_row : next_step;
          if (row_ends) step = 0;
        }
        ptx::wgmma_commit();
      };
      int left = p.r * steps;
      for (; left >= 4; left -= 4) multiply.template operator()<4>();
      if (left & 2) multiply.template operator()<2>();
      if (left & 1) multiply.template operator()<1>();
      if (by_brick && lane == 0) ptx::mbarrier_arrive(bar.turn(1 - g));
      ptx::wgmma_wait<0>();
      ptx::touch(d[0]);
      ptx::touch(d[1]);
      if (lane == 0 && block + 2 >= p.at.k_blocks) ptx::mbarrier_arrive(bar.bricks.empty(at.slot));
      if constexpr (Pool == FirstPool::max3) mask_outside<T, N>(p, b, d);

      const auto write = [&] {
        write_staging<T, F::count>(
            p.post, bias, staging, [&](int f) { return F::value(d, carry, f); },
            [&](int f, int column) { return F::row(f, column, b.skip); });
      };
      store_staged(g, false, write, [&] {
        ptx::tma_store(b.skip ? &p.y_without_first : &p.y, staging, block * 64, b.out_x + b.skip,
                       b.out_y, b.n);
      });
    }
    at.advance(p.at.bricks, stride);
  }
  if (leads_warpgroup()) ptx::bulk_wait_read<0>();
}

template <class T, int N, FirstPool Pool>
__global__ void __launch_bounds__(first_threads, 1) first(const __grid_constant__ FirstParams p) {
  static_assert(N % 8 == 0 && N <= 128,
                "two accumulators of N/2 registers each leave room for a carry");
  static_assert(Pool != FirstPool::max2 || N % 16 == 0, "max 2x2 takes pairs of rows");
  static_assert(Pool != FirstPool::max3 || N % 16 == 8,
                "max 3x3 takes two rows a window, and one more");
  static_assert(sizeof(FirstParams) <= 4096, "kernels take at most 4 KB of parameters");
  extern __shared__ std::uint8_t raw[];
  std::uint8_t* base = raw + aligned(ptx::shared_address(raw)) - ptx::shared_address(raw);
  std::uint8_t* bricks = base + 2 * p.at.staging;
  std::uint8_t* weights = bricks + p.at.bricks * p.at.brick_bytes;
  std::uint8_t* rows = weights + p.at.w_bytes;
  const FirstBarriers bar(ptx::shared_address(rows + raw_slots * p.at.raw_bytes), p.at.bricks);
  const int warpgroup = warpgroup_of_thread();

  if (threadIdx.x == 0) {
    const int readers = p.at.k_blocks == 1 ? warpgroup_warps : 2 * warpgroup_warps;
    for (int s = 0; s < p.at.bricks; ++s) bar.bricks.init(s, warpgroup_warps, readers);
    for (int s = 0; s < raw_slots; ++s) ptx::mbarrier_init(bar.raw(s), 1);
    for (int g = 0; g < 2; ++g) ptx::mbarrier_init(bar.turn(g), warpgroup_warps);
    ptx::mbarrier_init(bar.weights(), 1);
    ptx::mbarrier_init_fence();
    ptx::prefetch_tensor_map(&p.y);
    ptx::prefetch_tensor_map(&p.y_without_first);
  }
  __syncthreads();
  ptx::grid_launch_dependents();
  if (threadIdx.x == 0) {  // settled before the launch: no need to wait
    ptx::mbarrier_arrive_expect(bar.weights(), p.at.w_bytes);
    ptx::bulk_load(ptx::shared_address(weights), p.w, p.at.w_bytes, bar.weights());
  }
  if (warpgroup >= 2 && p.at.raw && leads_warpgroup()) first_prefetch<Pool>(p, warpgroup - 2);
  ptx::grid_dependency_wait();

  if (warpgroup >= 2) {
    ptx::shrink_registers<80>();
    first_produce<T, Pool>(p, rows, bricks, bar, warpgroup - 2);
  } else {
    ptx::grow_registers<176>();
    ptx::mbarrier_wait(bar.weights(), 0);
    first_consume<T, N, Pool>(p, ptx::shared_address(bricks), ptx::shared_address(weights),
                              ptx::shared_address(base) + warpgroup * p.at.staging, bar, warpgroup);
  }
}

}  // namespace convoy::cuda::sm90
