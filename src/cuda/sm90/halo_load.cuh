// How the halo family's pixels and weights reach shared memory: where a tile lies, the barriers of
// the two rings, and the threads that keep the rings full.
//
// To fill a slot takes a thread about 300 cycles, whatever the slot's size: a wait, an arrival, a
// load, each of which waits for the one before. That is more than the math of a tap of a small
// tile. So a slot is one load wherever TMA can bring it as one, and threads take turns with the
// slots of a ring.
//
// Params is HaloParams, or what a kernel adds to them; then `place` may be its own. Stamped takes
// the time stamps of a traced kernel (cuda/stamps.cuh); NoStamps compiles to nothing.
#pragma once

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/halo_params.hpp"
#include "cuda/sm90/halo_thread.hpp"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/shared_memory.hpp"
#include "cuda/sm90/warpgroups.cuh"
#include "cuda/stamps.cuh"

namespace convoy::cuda::sm90 {

constexpr int consumer_warps = 2 * warpgroup_warps;
constexpr int halo_threads =
    3 * warpgroup_threads;  // two warpgroups of consumers, one of producers

/// Which of a ring's producers a thread is: every `of`-th load is its own, from number `which` on.
struct Producer {
  int which, of;
};

/// Waits until the ring's next slot has been given back. In ping-pong a tile's last slot may be
/// given back after the next tile's first ones. If the size of the ring is odd, a slot `passes`
/// from one producer to the other. Parity can't tell its last release from the one two rounds ago,
/// so the thread first waits until the other producer has filled the slot in between.
__device__ __forceinline__ void wait_empty(const RingBarriers& barriers, const Ring& ring,
                                           bool passes) {
  if (passes) ptx::mbarrier_wait(barriers.full(ring.slot), ring.parity ^ 1);
  ptx::mbarrier_wait(barriers.empty(ring.slot), ring.parity ^ 1);
}

/// Where tile number t lies.
__device__ __forceinline__ Place place(const HaloParams& p, int t) {
  return halo_place(p.at, p.by_k, p.by_x, p.by_y, t);
}

/// Barriers in shared memory: of both rings, then whose turn it is.
struct HaloBarriers {
  RingBarriers x, w;
  __device__ __forceinline__ HaloBarriers(const HaloParams& p, std::uint32_t base)
      : x{base + p.at.barrier_offset, p.at.x_slots}, w{x.end(), p.at.w_slots} {}
  __device__ __forceinline__ std::uint32_t turn(int g) const {
    return w.end() + mbarrier_bytes * g;
  }
  __device__ __forceinline__ std::uint32_t end() const { return turn(2); }
};

/// Touches all of a kernel's parameters, each warp some: they are new to the constant caches in
/// every launch, and would otherwise be missed line by line, one after the other.
template <class Params>
__device__ __forceinline__ void fetch_constants(const Params& p) {
  constexpr int line = 64, lines = sizeof(Params) / line;
  const auto* bytes = reinterpret_cast<const char*>(&p);
  const int warps = static_cast<int>(blockDim.x) / 32;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < lines; i += warps)
    asm volatile("" ::"r"(*reinterpret_cast<const int*>(bytes + line * i)));
}

/// Initialises the barriers of both rings; a CTA barrier must follow.
__device__ __forceinline__ void init_rings(const HaloParams& p, const HaloBarriers& bar) {
  // One thread a barrier: a small stage is over in the time a single thread takes for all of them.
  const int thread = threadIdx.x, readers = p.at.pingpong ? consumer_warps / 2 : consumer_warps;
  if (thread < p.at.x_slots) bar.x.init(thread, 1, readers * p.at.sharers);
  if (thread < p.at.w_slots) bar.w.init(thread, 1, readers);
  if (thread < 2) ptx::mbarrier_init(bar.turn(thread), consumer_warps / 2);
  if (thread < 64) ptx::mbarrier_init_fence();
}

/// Brings what the CTA's first slots will hold to the L2 while the kernel before still runs: what
/// that one did not write may yet lie in memory. The CTAs of a tile's channel blocks share the
/// pixels, and the work.
template <class Params>
__device__ __forceinline__ void prefetch_pixels(const Params& p) {
  int t = blockIdx.x * p.at.sharers;
  if (t >= p.tiles) return;
  const auto at = place(p, t);
  int others = p.by_k.reduce(t) / p.at.sharers, slots = p.at.x_slots;
  const int sharing = static_cast<int>(p.by_k.d) / p.at.sharers;
  for (int chunk = 0; chunk < p.at.chunks; chunk += p.at.slot_chunks) {
    for (int box = 0; box < p.at.boxes; box += p.at.slot_boxes) {
      if (slots-- == 0) return;
      if (others-- > 0) continue;
      others = sharing - 1;
      each_box(p, at, chunk, box, [&](int c0, int c1, int c2, int c3, int c4) {
        ptx::tma_prefetch(&p.x, c0, c1, c2, c3, c4);
      });
    }
  }
}

/// Keeps the ring of pixel boxes full, once the kernel before has written them.
template <class Params, class Stamped = NoStamps>
__device__ __forceinline__ void produce_pixels(const Params& p, const HaloBarriers& bar,
                                               std::uint32_t slots, Producer me,
                                               Stamped&& stamps = NoStamps()) {
  Ring ring;
  int others = me.which;  // slots until the next of its own
  int count = 0;          // of all slots so far
  bool written = false;
  for (int t = blockIdx.x * p.at.sharers; t < p.tiles; t += gridDim.x * p.at.sharers) {
    const auto at = place(p, t);
    for (int chunk = 0; chunk < p.at.chunks; chunk += p.at.slot_chunks) {
      for (int box = 0; box < p.at.boxes; box += p.at.slot_boxes) {
        if (others-- == 0) {
          others = me.of - 1;
          stamps.at(State::wait, count);
          wait_empty(bar.x, ring, p.at.x_passes);
          const std::uint32_t full = bar.x.full(ring.slot);
          ptx::mbarrier_arrive_expect(full, p.at.x_bytes);
          std::uint32_t to = slots + ring.slot * p.at.x_slot;
          if (!written) {
            stamps.at(State::run_before);
            ptx::grid_dependency_wait();
          }
          written = true;
          stamps.at(State::load, count);
          each_box(p, at, chunk, box, [&](int c0, int c1, int c2, int c3, int c4) {
            ptx::tma_load(to, &p.x, full, c0, c1, c2, c3, c4);
            to += p.at.load_chunks * p.at.x_box;
          });
        }
        ring.advance(p.at.x_slots);
        ++count;
      }
    }
  }
}

/// Keeps the ring of weight slabs full; resident weights are loaded once. The first pixels would
/// queue behind all slabs that were asked for before them: only `early_slabs` are.
template <class Params, class Stamped = NoStamps>
__device__ __forceinline__ void produce_weights(const Params& p, const HaloBarriers& bar,
                                                std::uint32_t slots, Producer me,
                                                Stamped&& stamps = NoStamps()) {
  Ring ring;
  int others = me.which, early = p.at.early_slabs;
  for (int t = blockIdx.x * p.at.sharers; t < p.tiles; t += gridDim.x * p.at.sharers) {
    for (int tile = t; tile < t + p.at.sharers; ++tile) {
      const int k = place(p, tile).k;
      for (int slab = 0; slab < p.slabs; ++slab) {
        if (early-- == 0) {
          stamps.at(State::wait, slab);
          ptx::mbarrier_wait(bar.x.full(0), 0);
        }
        if (others-- == 0) {
          others = me.of - 1;
          stamps.at(State::wait, slab);
          if (!p.at.resident) wait_empty(bar.w, ring, p.at.w_passes);
          const std::uint32_t full = bar.w.full(ring.slot);
          ptx::mbarrier_arrive_expect(full, p.at.w_slot);
          stamps.at(State::load, slab);
          ptx::tma_load(slots + ring.slot * p.at.w_slot, &p.w, full, 0, k, slab * p.at.slab_taps);
        }
        ring.advance(p.at.w_slots);
      }
    }
    if (p.at.resident) return;
  }
}

}  // namespace convoy::cuda::sm90
