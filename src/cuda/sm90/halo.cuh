// halo: y = pool(act(conv(x, w) + bias)) by implicit GEMM on Hopper, from top to bottom.
//
// One CTA per SM walks over tiles of the output. A tile is 64 channels (GEMM's M) by some output
// pixels (GEMM's N) for each of two consumer warpgroups. M = channels, so that a thread's
// accumulators hold whole 2x2 windows: the pool needs no shuffle and no shared memory.
//
// The box of input pixels, with its halo, is loaded once per 64 input channels; the taps of the
// filter read that box at shifted places, made by moving the start address of the wgmma descriptor.
// Weights stream through a ring of their own, a tap or a filter row a slab, or stay resident; they
// lie in memory in the order of summation, so that a slab is one load (halo_maps.cpp). Where tiles
// are few and taps short, a slot of pixels is deep: it holds the boxes of several blocks of 64
// channels, and a slab as many of their taps as fit, so that a wait is for more math. Where a CTA
// has one tile, and all of that fits, the rings hold it all.
//
// A launch begins while the one before ends: its weights are loaded, and the pixels that it will
// read first are brought to the L2, before it may read them.
//
// Order of summation: 64 input channels, tap, 16 input channels. It does not depend on the tile.
#pragma once

#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/halo_load.cuh"
#include "cuda/sm90/halo_store.cuh"

namespace convoy::cuda::sm90 {

// ---------------------------------------------------------------------------------- consumers

/// A consumer's walk through both rings, one slab of weights at a time.
struct Walk {
  const HaloParams& p;
  OperandRing x, w;                      // what comes next
  int first = 0, tap = 0;                // first taps of the last slab and of the next
  std::uint32_t slot = 0, slot_low = 0;  // the pixels that the last slab reads: barrier, descriptor
  std::uint32_t slab = 0;                // the last slab's barrier
  std::uint32_t x_full = 0, x_parity = 0, w_parity = 0;  // what wait() is to wait for

  /// Moves on to the next slab, and to the next pixels if it opens a slot. `a` and `b` are its
  /// descriptors: not to be read before wait().
  __device__ __forceinline__ void look(std::uint32_t& a, std::uint32_t& b) {
    const std::uint32_t shift = p.at.tap_shift[tap];
    first = tap;
    x_full = 0;
    if (shift & opens_slot) {
      x_full = slot = x.full;
      x_parity = x.parity;
      slot_low = x.low;
      x.advance();
    }
    slab = w.full;
    w_parity = w.parity;
    // The shuffle changes nothing, but tells the compiler that the values are one a warp: it then
    // keeps descriptors in uniform registers, as wgmma wants them.
    a = __shfl_sync(0xFFFFFFFF, w.low, 0);
    b = __shfl_sync(0xFFFFFFFF, slot_low + (shift & ~opens_slot), 0);
    w.advance();
    tap += p.at.slab_taps;
    if (tap == p.slot_taps) tap = 0;
  }
  __device__ __forceinline__ void wait() const {
    if (x_full != 0) ptx::mbarrier_wait(x_full, x_parity);
    ptx::mbarrier_wait(slab, w_parity);
  }
  __device__ __forceinline__ void skip_tile() {
    x.skip(p.at.skip_x, p.at.skip_x_odd);
    if (!p.at.resident) w.skip(p.at.skip_w, p.at.skip_w_odd);
  }
};

/// The k16 steps of a tap: four, or fewer where the stage has so few channels that the others would
/// multiply zeros. One fence a tap: without one in every basic block the compiler
/// serialises all wgmmas, and each fence begins a group that wgmma_wait counts, committed or not.
/// A whole tap may then be left unfinished, so that the tensor cores do not run dry between slabs.
template <class T, int N, int I, int Steps>
__device__ __forceinline__ void multiply_tap(Sum<T> (&d)[I][N / 2], std::uint32_t a,
                                             std::uint32_t b, const HaloParams& p, int keep) {
  const std::uint32_t a_high = ptx::swizzled_high(swizzle_bytes),
                      b_high = ptx::swizzled_high(p.at.group_stride);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < Steps; ++step) {
#pragma unroll
    for (int i = 0; i < I; ++i) {
      ptx::Wgmma<T, N>::mma(
          d[i], ptx::descriptor_of(a + step_units * step, a_high),
          ptx::descriptor_of(b + step_units * step + i * (p.at.instruction_stride >> 4), b_high),
          step == 0 ? keep : 1);
    }
  }
}

/// The math of warpgroup g: `finish(d, bias, at)` gets the accumulators of each of its tiles, with
/// the bias of the thread's two channels.
template <class T, int N, int I, int Steps = row_steps, class Params, class Finish,
          class Stamped = NoStamps>
__device__ __forceinline__ void consume(const Params& p, const HaloBarriers& bar,
                                        std::uint32_t x_slots, std::uint32_t w_slots, int g,
                                        Finish finish, Stamped&& stamps = NoStamps()) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool gives_x = lane == 0, gives_w = lane == 0 && !p.at.resident;
  const std::uint32_t tap_step = p.at.cta_channels * row_bytes >> 4;
  Sum<T> d[I][N / 2];
  Walk walk{p, OperandRing(bar.x, x_slots + g * p.at.warpgroup_stride, p.at.x_slot, true),
            OperandRing(bar.w, w_slots + g * p.at.warpgroup_channels * row_bytes, p.at.w_slot,
                        !p.at.resident)};
  int turn = 0;
  const int stride = p.at.pingpong ? 2 * gridDim.x : gridDim.x;
  const int first = p.at.sharers == 2 ? 2 * blockIdx.x + g
                    : p.at.pingpong   ? blockIdx.x + g * gridDim.x
                                      : blockIdx.x;
  // The other warpgroup's slots are left out under a tile's last math: 1 % faster than before the
  // next tile. But with N = 32 ptxas runs short of uniform registers for two such places, and keeps
  // all that follows from the warpgroup's number in vector registers (5 %).
  constexpr bool skips_before = N == 32;
  if (!skips_before && p.at.pingpong && g == 1) walk.skip_tile();

  for (int t = first; t < p.tiles; t += stride) {
    stamps.at(State::tile, t);
    const auto at = place(p, t);
    const int channel = at.k + g * p.at.warpgroup_channels + halo_channel(lane, warp);
    float bias[2];
    load_bias(p.post, channel, bias);
    // In ping-pong a warpgroup waits for its slots only when the other has waited for all of its
    // own: slots are then taken in the order of loading, and no wait can be a whole round of the
    // ring early. Warpgroup 0 begins unasked.
    if (p.at.pingpong) {
      stamps.at(State::turn);
      if (g == 1 || turn > 0) ptx::mbarrier_wait(bar.turn(g), (turn + (g == 1 ? 0 : 1)) & 1);
      ++turn;
    }

    if (skips_before && p.at.pingpong && (g == 1 || t != first)) walk.skip_tile();
    std::uint32_t a, b, next_a = 0, next_b = 0;
    stamps.at(State::wait, 0);
    walk.look(a, b);
    walk.wait();
#pragma unroll
    for (int i = 0; i < I; ++i) ptx::touch(d[i]);
    std::uint32_t w_last = 0, x_last = 0;
    for (int it = 0; it < p.slabs; ++it) {
      const bool last = it + 1 == p.slabs;
      stamps.at(State::math, it);
      multiply_tap<T, N, I, Steps>(d, a, b, p, it > 0);
      ptx::wgmma_commit();
      // All of this tile's waits are over: the other warpgroup may begin under the last slab's
      // math.
      if (p.at.pingpong && last && lane == 0) ptx::mbarrier_arrive(bar.turn(1 - g));
      // While this tap's math runs, that of the slab before is done: its slots go back at once, so
      // that their next load has the whole of this slab's time.
      ptx::wgmma_wait<1>();
      if (it > 0) {
        if (gives_w) ptx::mbarrier_arrive(walk.w.empty(w_last));
        if (gives_x && x_last != walk.slot) ptx::mbarrier_arrive(walk.x.empty(x_last));
      }
      w_last = walk.slab;
      x_last = walk.slot;
      // Only the waiting stands between the last tap of this slab and the first of the next: what
      // they are is found under the taps before.
      const std::uint32_t low = walk.slot_low;
      const int first = walk.first;
      for (int tap = 1; tap + 1 < p.at.slab_taps; ++tap) {
        a += tap_step;
        multiply_tap<T, N, I, Steps>(d, a, low + (p.at.tap_shift[first + tap] & ~opens_slot), p, 1);
        ptx::wgmma_commit();
      }
      if (!last) walk.look(next_a, next_b);
      if (p.at.slab_taps > 1) {
        a += tap_step;
        multiply_tap<T, N, I, Steps>(
            d, a, low + (p.at.tap_shift[first + p.at.slab_taps - 1] & ~opens_slot), p, 1);
        ptx::wgmma_commit();
      }
      if (!last) {
        stamps.at(State::wait, it + 1);
        walk.wait();
      }
      a = next_a;
      b = next_b;
    }
    if (!skips_before && p.at.pingpong) walk.skip_tile();
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < I; ++i) ptx::touch(d[i]);
    if (gives_w) ptx::mbarrier_arrive(walk.w.empty(w_last));
    if (gives_x) ptx::mbarrier_arrive(walk.x.empty(x_last));

    stamps.at(State::epilogue);
    finish(d, bias, at);
  }
}

// ---------------------------------------------------------------------------------- the kernel

/// All of a CTA: `finish(d, bias, at, staging, g)` takes a tile of warpgroup g from its
/// accumulators to memory, by its staging buffer.
template <class T, int N, int I, int Steps, class Params, class Finish, class Stamped = NoStamps>
__device__ __forceinline__ void run_cta(const Params& p, Finish finish,
                                        Stamped&& stamps = NoStamps()) {
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t base = aligned(ptx::shared_address(raw));
  const std::uint32_t x_slots = base, w_slots = base + p.at.w_offset;
  const HaloBarriers bar(p, base);

  fetch_constants(p);
  init_rings(p, bar);
  if (threadIdx.x == 32 * consumer_warps) {
    ptx::prefetch_tensor_map(&p.x);
    ptx::prefetch_tensor_map(&p.w);
    ptx::prefetch_tensor_map(&p.y);
  }
  if (threadIdx.x == 32 * (consumer_warps + 2)) prefetch_pixels(p);
  __syncthreads();
  ptx::grid_launch_dependents();

  const int warpgroup = warpgroup_of_thread();
  if (warpgroup == 2) {
    // Four producers, two for each ring. Weights are settled before the launch (HaloLaunch), so
    // that theirs need not wait for the kernel before.
    ptx::shrink_registers<40>();
    const int producer = static_cast<int>(threadIdx.x / 32 % 4);
    if (threadIdx.x % 32 == 0) {
      if (producer % 2 == 0)
        produce_pixels(p, bar, x_slots, {producer / 2, 2}, stamps);
      else
        produce_weights(p, bar, w_slots, {producer / 2, 2}, stamps);
      stamps.at(State::end);
    }
  } else {
    ptx::grow_registers<232>();
    stamps.at(State::run_before);
    ptx::grid_dependency_wait();
    const std::uint32_t staging =
        base + p.at.staging_offset + warpgroup * p.at.store_buffers * p.at.staging;
    consume<T, N, I, Steps>(
        p, bar, x_slots, w_slots, warpgroup,
        [&](auto& d, const float(&bias)[2], const auto& at) {
          finish(d, bias, at, staging, warpgroup);
        },
        stamps);
    stamps.at(State::store);
    if (leads_warpgroup()) ptx::bulk_wait_read<0>();
    stamps.at(State::end);
  }
}

template <class T, int N, int I, PoolKind Pool, int Steps>
requires HaloAccumulator<N, I, Pool, Steps> __global__ void __launch_bounds__(halo_threads, 1)
    halo(const __grid_constant__ HaloParams p) {
  run_cta<T, N, I, Steps>(p, [&](const Sum<T>(&d)[I][N / 2], const float(&bias)[2], const Place& at,
                                 std::uint32_t staging,
                                 int g) { store_tile<T, N, I, Pool>(p, d, bias, at, staging, g); });
}

}  // namespace convoy::cuda::sm90
