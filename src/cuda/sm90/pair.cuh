// pair: y = pool(act(conv1x1(pool(act(conv(x, w) + bias)), w2) + bias2)) on Hopper, the tensor in
// the middle never in memory.
//
// Two warpgroups run the first stage as `halo` does (halo.cuh has that story) and leave its pooled
// tile, rounded as `halo` would store it, in shared memory, where it is the pixel operand of the
// second stage's GEMM. A third warpgroup runs that GEMM, one block of 64 channels after the other,
// and stores the output, under the math of the next tile.
//
//   warpgroups 0, 1   first stage: 64 middle channels each, of one tile or of tiles in turns
//   warpgroup 2       second stage
//   warpgroup 3       producers, a thread of each warp: pixels, weights (two), second weights
//
// Order of summation of both stages: halo's. Two launches of `halo` give the same bits.
#pragma once

#include "cuda/sm90/halo.cuh"
#include "cuda/sm90/pair_map.hpp"
#include "cuda/sm90/pair_tile.hpp"

namespace convoy::cuda::sm90 {

constexpr int pair_threads = 4 * warpgroup_threads;
constexpr int second_warpgroup = 2;
constexpr int area_weights =
    block_channels * row_bytes;  // bytes: a row of channels in, a block out

/// What the warps of the last warpgroup load, by one thread each.
enum class PairProducer : int { pixels, weights0, weights1, second_weights };
__device__ __forceinline__ bool is(PairProducer which) {
  return threadIdx.x == 3 * warpgroup_threads + 32 * static_cast<int>(which);
}

struct PairParams {
  HaloParams first;
  CUtensorMap w2, y2;
  PostOps post2;
  SecondLayout at;
};
static_assert(sizeof(PairParams) <= 4096, "kernels take at most 4 KB of parameters");

/// Barriers behind those of the first stage: of the middle tile's areas, then of the second
/// weights.
struct PairBarriers {
  RingBarriers middle, w;
  __device__ __forceinline__ PairBarriers(const PairParams& p, std::uint32_t base)
      : middle{base, 2}, w{middle.end(), p.at.w_slots} {}
};

/// One thread keeps the ring of the second stage's weights full, a block of 64 channels a slot.
__device__ __forceinline__ void produce_second_weights(const PairParams& p, const PairBarriers& bar,
                                                       std::uint32_t slots) {
  Ring ring;
  const int step = gridDim.x * p.first.at.sharers;
  for (int t = blockIdx.x * p.first.at.sharers; t < p.first.tiles; t += step) {
    for (int block = 0; block < p.at.blocks; ++block) {
      ptx::mbarrier_wait(bar.w.empty(ring.slot), ring.parity ^ 1);
      const std::uint32_t full = bar.w.full(ring.slot);
      ptx::mbarrier_arrive_expect(full, p.at.w_slot);
      for (int area = 0; area < p.at.areas; ++area)
        ptx::tma_load(slots + ring.slot * p.at.w_slot + area * area_weights, &p.w2, full, 0,
                      block * block_channels, area);
      ring.advance(p.at.w_slots);
    }
    if (p.at.w_resident) return;
  }
}

/// Clears the accumulators of channels that the first stage does not have. They meet weights of 0,
/// but where x holds infinities they are NaN, and would stay so.
template <class T, int N, int I>
__device__ __forceinline__ void clear_missing(Sum<T> (&d)[I][N / 2], int missing_from, int g) {
  const int channel = g * block_channels + 16 * (threadIdx.x / 32 % 4) + threadIdx.x % 32 / 4;
#pragma unroll
  for (int v = 0; v < I * N / 2; ++v) {
    if (channel + (v % 4 / 2) * 8 >= missing_from) d[v / (N / 2)][v % (N / 2)] = 0;
  }
}

/// Leaves a warpgroup's pooled tile, its `turn`-th, in its area of the middle tile.
template <class T, int N, int I>
__device__ __forceinline__ void store_middle(const PairParams& p, const PairBarriers& bar,
                                             Sum<T> (&d)[I][N / 2], const float (&bias)[2],
                                             std::uint32_t area, int g, int turn) {
  using F = Fragments<T, N, I, PoolKind::pixels>;
  const PostOps& post = p.first.post;
  if (post.k % block_channels != 0) clear_missing<T, N, I>(d, post.k, p.at.areas == 2 ? g : 0);
  ptx::mbarrier_wait(bar.middle.empty(g), (turn & 1) ^ 1);
  write_staging<T, F::count>(
      post, bias, area, [&](int f) { return F::value(d, f); },
      [&](int f, int column) {
        const int i = f / F::per_instruction, j = f % F::per_instruction;
        return middle_row(i * p.at.window_i + j * p.at.window_j, column);
      });
  ptx::fence_proxy_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(bar.middle.full(g));
}

/// Writes a block of 64 output channels for the TMA store.
template <class T, int N2>
__device__ __forceinline__ void write_second(const PairParams& p, const Sum<T> (&d)[1][N2 / 2],
                                             const float (&bias)[2], std::uint32_t staging) {
  if (p.at.shrink == 4) {
    using F = Fragments<T, N2, 1, PoolKind::pixels>;
    write_staging<T, F::count>(
        p.post2, bias, staging, [&](int f) { return F::value(d, f); },
        [](int f, int column) { return pooled_row(f, column); });
  } else {
    using F = Fragments<T, N2, 1, PoolKind::none>;
    write_staging<T, F::count>(
        p.post2, bias, staging, [&](int f) { return F::value(d, f); },
        [&](int f, int column) { return unpooled_row(8 * f + column, p.at.log2_across); });
  }
}

/// The second stage: one warpgroup over all tiles of the CTA, two blocks of 64 channels at a time.
template <class T, int N2>
__device__ __forceinline__ void consume_middle(const PairParams& p, const PairBarriers& bar,
                                               std::uint32_t middle, std::uint32_t w2_slots,
                                               std::uint32_t staging) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool gives_w = lane == 0 && !p.at.w_resident;
  const std::uint64_t rows = ptx::descriptor_base(swizzle_bytes);
  const int step = gridDim.x * p.first.at.sharers;
  Ring ring;
  int turn = 0;
  for (int t = blockIdx.x * p.first.at.sharers; t < p.first.tiles; t += step, ++turn) {
    const Place at = place(p.first, t);
    // A wide middle tile fills both areas, a narrow one that of the warpgroup whose turn it was.
    const int first = p.at.areas == 2 ? 0 : turn & 1;
    const std::uint32_t parity = (p.at.areas == 2 ? turn : turn >> 1) & 1;
    for (int area = first; area < first + p.at.areas; ++area)
      ptx::mbarrier_wait(bar.middle.full(area), parity);
    for (int block = 0; block < p.at.blocks; block += 2) {
      Sum<T> d[2][1][N2 / 2];
      float bias[2][2];
      std::uint32_t emptied[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int channel = (block + h) * block_channels + 16 * warp + lane / 4;
        load_bias(p.post2, channel, bias[h]);
        ptx::touch(d[h][0]);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        ptx::mbarrier_wait(bar.w.full(ring.slot), p.at.w_resident ? 0 : ring.parity);
        const std::uint32_t w = __shfl_sync(0xFFFFFFFF, w2_slots + ring.slot * p.at.w_slot, 0);
        const std::uint32_t x = __shfl_sync(0xFFFFFFFF, middle + first * p.first.at.staging, 0);
        emptied[h] = bar.w.empty(ring.slot);
        ring.advance(p.at.w_slots);
        for (int area = 0; area < p.at.areas; ++area) {
          const std::uint64_t a = ptx::descriptor(rows, w + area * area_weights),
                              b = ptx::descriptor(rows, x + area * p.first.at.staging);
          ptx::wgmma_fence();
#pragma unroll
          for (int step = 0; step < row_steps; ++step)
            ptx::Wgmma<T, N2>::mma(d[h][0], a + step_units * step, b + step_units * step,
                                   step == 0 ? area > 0 : 1);
          ptx::wgmma_commit();
        }
      }
      if (p.at.areas == 2)
        ptx::wgmma_wait<2>();
      else
        ptx::wgmma_wait<1>();
      if (gives_w) ptx::mbarrier_arrive(emptied[0]);
      ptx::wgmma_wait<0>();
      if (gives_w) ptx::mbarrier_arrive(emptied[1]);
      if (lane == 0 && block + 2 >= p.at.blocks) {
        for (int area = first; area < first + p.at.areas; ++area)
          ptx::mbarrier_arrive(bar.middle.empty(area));
      }

      const auto write = [&] {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          ptx::touch(d[h][0]);
          write_second<T, N2>(p, d[h], bias[h], staging + h * p.at.staging);
        }
      };
      store_staged(second_warpgroup, false, write, [&] {
        for (int h = 0; h < 2; ++h)
          ptx::tma_store(&p.y2, staging + h * p.at.staging, (block + h) * block_channels,
                         at.x / p.at.shrink, at.y / p.at.shrink, at.n);
      });
    }
  }
  if (leads_warpgroup()) ptx::bulk_wait_read<0>();
}

template <class T, int N, int I>
__global__ void __launch_bounds__(pair_threads, 1) pair(const __grid_constant__ PairParams p) {
  static_assert(N <= 192, "with 512 threads a kernel starts with 128 registers a thread");
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t base = aligned(ptx::shared_address(raw));
  const std::uint32_t x_slots = base, w_slots = base + p.first.at.w_offset,
                      middle = base + p.first.at.staging_offset, w2_slots = base + p.at.w_offset;
  const HaloBarriers bar(p.first, base);
  const PairBarriers bar2(p, bar.end());

  const int thread = threadIdx.x;
  if (thread < 2) bar2.middle.init(thread, warpgroup_warps, warpgroup_warps);
  if (thread < p.at.w_slots) bar2.w.init(thread, 1, warpgroup_warps);
  init_rings(p.first, bar);
  if (is(PairProducer::pixels)) {
    ptx::prefetch_tensor_map(&p.first.x);
    ptx::prefetch_tensor_map(&p.first.w);
    ptx::prefetch_tensor_map(&p.w2);
    ptx::prefetch_tensor_map(&p.y2);
  }
  if (is(PairProducer::weights0)) prefetch_pixels(p.first);
  __syncthreads();
  ptx::grid_launch_dependents();

  const int warpgroup = warpgroup_of_thread();
  if (warpgroup < second_warpgroup) {
    ptx::grow_registers<176>();
    ptx::grid_dependency_wait();
    const std::uint32_t area = middle + warpgroup * p.first.at.staging;
    int turn = 0;
    consume<T, N, I>(p.first, bar, x_slots, w_slots, warpgroup,
                     [&](Sum<T>(&d)[I][N / 2], const float(&bias)[2], const Place&) {
                       store_middle<T, N, I>(p, bar2, d, bias, area, warpgroup, turn++);
                     });
  } else if (warpgroup == second_warpgroup) {
    ptx::shrink_registers<120>();
    ptx::grid_dependency_wait();
    consume_middle<T, middle_columns(N, I)>(p, bar2, middle, w2_slots, base + p.at.staging_offset);
  } else {
    // Weights are settled before the launch (PairLaunch): they come while the kernel before drains.
    ptx::shrink_registers<40>();
    if (is(PairProducer::pixels)) produce_pixels(p.first, bar, x_slots, {0, 1});
    if (is(PairProducer::weights0)) produce_weights(p.first, bar, w_slots, {0, 2});
    if (is(PairProducer::weights1)) produce_weights(p.first, bar, w_slots, {1, 2});
    if (is(PairProducer::second_weights)) produce_second_weights(p, bar2, w2_slots);
  }
}

}  // namespace convoy::cuda::sm90
