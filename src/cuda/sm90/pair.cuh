// pair: y = pool(act(conv1x1(pool(act(conv(x, w) + bias)), w2) + bias2)) on Hopper, the tensor in
// the middle never in memory.
//
// Two warpgroups run the first stage as `halo` does (halo.cuh has that story) and leave its pooled
// tile, rounded as `halo` would store it, in shared memory, where it is the pixel operand of the
// second stage's GEMM. A third warpgroup runs that GEMM, one block of 64 channels after the other,
// and stores the output, under the math of the next tile.
//
//     warpgroups 0, 1    first stage: 64 middle channels each, of one tile (cooperative) or in
//     turns warpgroup 2        second stage warpgroup 3        four producers: pixels, weights
//     (two), weights of the second stage
//
// Order of summation of both stages: halo's. Two launches of `halo` give the same bits.
#pragma once

#include "cuda/sm90/halo.cuh"
#include "cuda/sm90/pair_map.hpp"
#include "cuda/sm90/pair_tile.hpp"

namespace convoy::cuda::sm90 {

constexpr int pair_threads = 512;
constexpr int area_weights = 64 * 128;  // bytes: 64 channels in, 64 out

struct PairParams {
  HaloParams first;
  CUtensorMap w2, y2;
  const float* bias2;
  Clamp act2;
  int k2, blocks, areas, window_i, window_j;
  int w2_slot, w2_slots;
  bool w2_resident;                          // all blocks have a slot: loaded once
  int w2_offset, staging2_offset, staging2;  // of what lies behind the first stage's shared memory
  int shrink;       // conv pixels of the first stage to output pixels: 2 or 4
  int log2_across;  // windows of the second pool across a tile
};

/// Barriers behind those of the first stage: areas of the middle tile, then the second weights'
/// ring.
struct PairBarriers {
  std::uint32_t base;
  int slots;
  __device__ __forceinline__ std::uint32_t middle_full(int area) const { return base + 8 * area; }
  __device__ __forceinline__ std::uint32_t middle_empty(int area) const {
    return base + 16 + 8 * area;
  }
  __device__ __forceinline__ std::uint32_t w_full(int s) const { return base + 32 + 8 * s; }
  __device__ __forceinline__ std::uint32_t w_empty(int s) const {
    return base + 32 + 8 * (slots + s);
  }
};

/// One thread keeps the ring of the second stage's weights full, a block of 64 channels a slot.
__device__ __forceinline__ void produce_second_weights(const PairParams& p, const PairBarriers& bar,
                                                       std::uint32_t slots) {
  Ring ring;
  const int step = gridDim.x * p.first.sharers;
  for (int t = blockIdx.x * p.first.sharers; t < p.first.tiles; t += step) {
    for (int block = 0; block < p.blocks; ++block) {
      ptx::mbarrier_wait(bar.w_empty(ring.slot), ring.parity ^ 1);
      const std::uint32_t full = bar.w_full(ring.slot);
      ptx::mbarrier_arrive_expect(full, p.w2_slot);
      for (int area = 0; area < p.areas; ++area)
        ptx::tma_load(slots + ring.slot * p.w2_slot + area * area_weights, &p.w2, full, 0,
                      block * 64, area);
      ring.advance(p.w2_slots);
    }
    if (p.w2_resident) return;
  }
}

/// Clears the accumulators of channels that the first stage does not have. They meet weights of 0,
/// but where x holds infinities they are NaN, and would stay so.
template <int N, int I>
__device__ __forceinline__ void clear_missing(float (&d)[I][N / 2], int missing_from, int g) {
  const int channel = g * 64 + 16 * (threadIdx.x / 32 % 4) + threadIdx.x % 32 / 4;
#pragma unroll
  for (int v = 0; v < I * N / 2; ++v) {
    if (channel + (v % 4 / 2) * 8 >= missing_from) d[v / (N / 2)][v % (N / 2)] = 0.0f;
  }
}

/// Leaves a warpgroup's pooled tile, its `turn`-th, in its area of the middle tile.
template <class T, int N, int I>
__device__ __forceinline__ void store_middle(const PairParams& p, const PairBarriers& bar,
                                             float (&d)[I][N / 2], const float (&bias)[2],
                                             std::uint32_t area, int g, int turn) {
  using U = Units<N, I, PoolKind::pixels>;
  if (p.first.k % 64 != 0) clear_missing<N, I>(d, p.first.k, p.areas == 2 ? g : 0);
  ptx::mbarrier_wait(bar.middle_empty(g), (turn & 1) ^ 1);
  stage_units<T, U::count>(
      p.first.act, bias, area, [&](int u) { return U::value(d, u); },
      [&](int u, int column) {
        const int i = u / U::per_instruction, j = u % U::per_instruction;
        return middle_row(i * p.window_i + j * p.window_j, column);
      });
  ptx::fence_proxy_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(bar.middle_full(g));
}

/// Rounds a block of 64 output channels once and stages it for the TMA store.
template <class T, int N2>
__device__ __forceinline__ void stage_second(const PairParams& p, const float (&d)[1][N2 / 2],
                                             const float (&bias)[2], std::uint32_t staging) {
  if (p.shrink == 4) {
    using U = Units<N2, 1, PoolKind::pixels>;
    stage_units<T, U::count>(
        p.act2, bias, staging, [&](int u) { return U::value(d, u); },
        [](int u, int column) { return pooled_row(u, column); });
  } else {
    using U = Units<N2, 1, PoolKind::none>;
    stage_units<T, U::count>(
        p.act2, bias, staging, [&](int u) { return U::value(d, u); },
        [&](int u, int column) { return unpooled_row(8 * u + column, p.log2_across); });
  }
}

/// The second stage: one warpgroup over all tiles of the CTA, two blocks of 64 channels at a time.
template <class T, int N2>
__device__ __forceinline__ void consume_middle(const PairParams& p, const PairBarriers& bar,
                                               std::uint32_t middle, std::uint32_t w2_slots,
                                               std::uint32_t staging) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool leader = threadIdx.x % 128 == 0, gives_w = lane == 0 && !p.w2_resident;
  const std::uint64_t rows = ptx::descriptor_base(1024);
  const int step = gridDim.x * p.first.sharers;
  Ring ring;
  int turn = 0;
  for (int t = blockIdx.x * p.first.sharers; t < p.first.tiles; t += step, ++turn) {
    const Place at = place(p.first, t);
    // A wide middle tile fills both areas, a narrow one that of the warpgroup whose turn it was.
    const int first = p.areas == 2 ? 0 : turn & 1;
    const std::uint32_t parity = (p.areas == 2 ? turn : turn >> 1) & 1;
    for (int area = first; area < first + p.areas; ++area)
      ptx::mbarrier_wait(bar.middle_full(area), parity);
    for (int block = 0; block < p.blocks; block += 2) {
      float d[2][1][N2 / 2], bias[2][2] = {};
      std::uint32_t emptied[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int channel = (block + h) * 64 + 16 * warp + lane / 4;
        if (p.bias2 != nullptr) {
          if (channel < p.k2) bias[h][0] = p.bias2[channel];
          if (channel + 8 < p.k2) bias[h][1] = p.bias2[channel + 8];
        }
        ptx::touch(d[h][0]);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        ptx::mbarrier_wait(bar.w_full(ring.slot), p.w2_resident ? 0 : ring.parity);
        const std::uint32_t w = __shfl_sync(0xFFFFFFFF, w2_slots + ring.slot * p.w2_slot, 0);
        const std::uint32_t x = __shfl_sync(0xFFFFFFFF, middle + first * p.first.staging, 0);
        emptied[h] = bar.w_empty(ring.slot);
        ring.advance(p.w2_slots);
        for (int area = 0; area < p.areas; ++area) {
          const std::uint64_t a = ptx::descriptor(rows, w + area * area_weights),
                              b = ptx::descriptor(rows, x + area * p.first.staging);
          ptx::wgmma_fence();
#pragma unroll
          for (int k = 0; k < 4; ++k)
            ptx::Wgmma<T, N2>::mma(d[h][0], a + 2 * k, b + 2 * k, k == 0 ? area > 0 : 1);
          ptx::wgmma_commit();
        }
      }
      if (p.areas == 2)
        ptx::wgmma_wait<2>();
      else
        ptx::wgmma_wait<1>();
      if (gives_w) ptx::mbarrier_arrive(emptied[0]);
      ptx::wgmma_wait<0>();
      if (gives_w) ptx::mbarrier_arrive(emptied[1]);
      if (lane == 0 && block + 2 >= p.blocks) {
        for (int area = first; area < first + p.areas; ++area)
          ptx::mbarrier_arrive(bar.middle_empty(area));
      }

      if (leader) ptx::bulk_wait_read<0>();  // what was staged before has left
      ptx::bar_sync(1, 128);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        ptx::touch(d[h][0]);
        stage_second<T, N2>(p, d[h], bias[h], staging + h * p.staging2);
      }
      ptx::fence_proxy_async();
      ptx::bar_sync(1, 128);
      if (leader) {
        for (int h = 0; h < 2; ++h)
          ptx::tma_store(&p.y2, staging + h * p.staging2, (block + h) * 64, at.x / p.shrink,
                         at.y / p.shrink, at.n);
        ptx::bulk_commit();
      }
    }
  }
  if (leader) ptx::bulk_wait_read<0>();
}

template <class T, int N, int I>
__global__ void __launch_bounds__(pair_threads, 1) pair(const __grid_constant__ PairParams p) {
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 1023) & ~1023u;
  const std::uint32_t x_slots = base, w_slots = base + p.first.w_offset,
                      middle = base + p.first.staging_offset, w2_slots = base + p.w2_offset;
  const Barriers bar{base + p.first.barrier_offset, p.first.x_slots, p.first.w_slots};
  const PairBarriers bar2{bar.turn(2), p.w2_slots};

  const int thread = threadIdx.x;
  if (thread < 2) {
    ptx::mbarrier_init(bar2.middle_full(thread), 4);
    ptx::mbarrier_init(bar2.middle_empty(thread), 4);
  }
  if (thread < p.w2_slots) {
    ptx::mbarrier_init(bar2.w_full(thread), 1);
    ptx::mbarrier_init(bar2.w_empty(thread), 4);
  }
  init_rings(p.first, bar);
  if (thread == 384) {
    ptx::prefetch_tensor_map(&p.first.x);
    ptx::prefetch_tensor_map(&p.first.w);
    ptx::prefetch_tensor_map(&p.w2);
    ptx::prefetch_tensor_map(&p.y2);
  }
  if (thread == 416) prefetch_pixels(p.first);
  __syncthreads();
  ptx::grid_launch_dependents();

  const int warpgroup =
      __shfl_sync(0xFFFFFFFF, threadIdx.x / 128, 0);  // so that the compiler sees one value a warp
  if (warpgroup < 2) {
    ptx::grow_registers<176>();
    ptx::grid_dependency_wait();
    int turn = 0;
    consume<T, N, I>(p.first, bar, x_slots, w_slots, warpgroup,
                     [&](float(&d)[I][N / 2], const float(&bias)[2], const Place&) {
                       store_middle<T, N, I>(p, bar2, d, bias, middle + warpgroup * p.first.staging,
                                             warpgroup, turn++);
                     });
  } else if (warpgroup == 2) {
    ptx::shrink_registers<120>();
    ptx::grid_dependency_wait();
    consume_middle<T, middle_columns(N, I)>(p, bar2, middle, w2_slots, base + p.staging2_offset);
  } else {
    // Weights are settled before the launch (PairRun): they come while the kernel before drains.
    ptx::shrink_registers<40>();
    if (thread == 384) produce_pixels(p.first, bar, x_slots, {0, 1});
    if (thread == 416) produce_weights(p.first, bar, w_slots, {0, 2});
    if (thread == 448) produce_weights(p.first, bar, w_slots, {1, 2});
    if (thread == 480) produce_second_weights(p, bar2, w2_slots);
  }
}

}  // namespace convoy::cuda::sm90
