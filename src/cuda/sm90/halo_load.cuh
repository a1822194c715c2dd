// How the halo family's pixels and weights reach shared memory: where a tile lies, the barriers of
// the two rings, and the threads that keep the rings full.
//
// To fill a slot takes a thread about 300 cycles, whatever the slot's size: a wait, an arrival, a
// load, each of which waits for the one before. That is more than the math of a tap of a small
// tile. So a slot is one load wherever TMA can bring it as one, and threads take turns with the
// slots of a ring.
#pragma once

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/halo_params.hpp"
#include "cuda/sm90/ring.cuh"

namespace convoy::cuda::sm90 {

constexpr int consumer_warps = 8;
constexpr int halo_threads = 384;

/// Which of a ring's producers a thread is: every `of`-th slot is its own, from number `which` on.
struct Producer {
  int which, of;
};

/// Where tile number t lies: channel block fastest, so that CTAs at work together share pixels.
struct Place {
  int k, x, y, n;  // first channel, first conv pixel, first image
};
__device__ __forceinline__ Place place(const HaloParams& p, int t) {
  Place at;
  at.k = p.k_blocks.reduce(t) * p.cta_channels;
  at.x = p.tiles_x.reduce(t) * p.cta_w;
  at.y = p.tiles_y.reduce(t) * p.cta_h;
  at.n = t * p.cta_n;
  return at;
}

/// Barriers in shared memory, 8 bytes each: full and empty of both rings, then whose turn it is.
struct Barriers {
  std::uint32_t base;
  int x_slots, w_slots;
  __device__ __forceinline__ std::uint32_t x_full(int s) const { return base + 8 * s; }
  __device__ __forceinline__ std::uint32_t x_empty(int s) const { return base + 8 * (x_slots + s); }
  __device__ __forceinline__ std::uint32_t w_full(int s) const {
    return base + 8 * (2 * x_slots + s);
  }
  __device__ __forceinline__ std::uint32_t w_empty(int s) const {
    return base + 8 * (2 * x_slots + w_slots + s);
  }
  __device__ __forceinline__ std::uint32_t turn(int g) const {
    return base + 8 * (2 * x_slots + 2 * w_slots + g);
  }
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
__device__ __forceinline__ void init_rings(const HaloParams& p, const Barriers& bar) {
  // One thread a barrier: a small stage is over in the time a single thread takes for all of them.
  const int thread = threadIdx.x, readers = p.pingpong ? consumer_warps / 2 : consumer_warps;
  if (thread < p.x_slots) {
    ptx::mbarrier_init(bar.x_full(thread), 1);
    ptx::mbarrier_init(bar.x_empty(thread), readers * p.sharers);
  }
  if (thread < p.w_slots) {
    ptx::mbarrier_init(bar.w_full(thread), 1);
    ptx::mbarrier_init(bar.w_empty(thread), readers);
  }
  if (thread < 2) ptx::mbarrier_init(bar.turn(thread), consumer_warps / 2);
  if (thread < 64) ptx::mbarrier_init_fence();
}

/// Calls `load` with the coordinates of each box of a slot of pixels, that of the given first chunk
/// and view.
template <class Load>
__device__ __forceinline__ void each_box(const HaloParams& p, const Place& at, int first_chunk,
                                         int first_view, Load load) {
  const int x0 = at.x * p.step_w + p.first_w, y0 = at.y * p.step_h + p.first_h;
  for (int v = first_view; v < first_view + p.slot_views; ++v) {
    const int x = x0 + p.view[v].dx, y = y0 + p.view[v].dy;
    const int c1 = p.images ? at.n : x, c2 = p.images ? x : y, c3 = p.images ? y : at.n;
    for (int chunk = first_chunk; chunk < first_chunk + p.slot_chunks; chunk += p.load_chunks)
      load(chunk * p.chunk_channels, c1, c2, c3, p.chunk_channels == 0 ? chunk : 0);
  }
}

/// Brings what the CTA's first slots will hold to the L2 while the kernel before still runs: what
/// that one did not write may yet lie in memory. The CTAs of a tile's channel blocks share the
/// pixels, and the work.
__device__ __forceinline__ void prefetch_pixels(const HaloParams& p) {
  int t = blockIdx.x * p.sharers;
  if (t >= p.tiles) return;
  const Place at = place(p, t);
  int others = p.k_blocks.reduce(t) / p.sharers, slots = p.x_slots;
  const int sharing = static_cast<int>(p.k_blocks.d) / p.sharers;
  for (int chunk = 0; chunk < p.chunks; chunk += p.slot_chunks) {
    for (int view = 0; view < p.views; view += p.slot_views) {
      if (slots-- == 0) return;
      if (others-- > 0) continue;
      others = sharing - 1;
      each_box(p, at, chunk, view, [&](int c0, int c1, int c2, int c3, int c4) {
        ptx::tma_prefetch(&p.x, c0, c1, c2, c3, c4);
      });
    }
  }
}

/// Keeps the ring of pixel boxes full, once the kernel before has written them.
__device__ __forceinline__ void produce_pixels(const HaloParams& p, const Barriers& bar,
                                               std::uint32_t slots, Producer me) {
  Ring ring;
  int others = me.which;  // slots until the next of its own
  bool written = false;
  for (int t = blockIdx.x * p.sharers; t < p.tiles; t += gridDim.x * p.sharers) {
    const Place at = place(p, t);
    for (int first = 0; first < p.chunks; first += p.slot_chunks) {
      for (int first_v = 0; first_v < p.views; first_v += p.slot_views) {
        if (others-- == 0) {
          others = me.of - 1;
          ptx::mbarrier_wait(bar.x_empty(ring.slot), ring.parity ^ 1);
          const std::uint32_t full = bar.x_full(ring.slot);
          ptx::mbarrier_arrive_expect(full, p.x_bytes);
          std::uint32_t to = slots + ring.slot * p.x_slot;
          if (!written) ptx::grid_dependency_wait();
          written = true;
          each_box(p, at, first, first_v, [&](int c0, int c1, int c2, int c3, int c4) {
            ptx::tma_load(to, &p.x, full, c0, c1, c2, c3, c4);
            to += p.load_chunks * p.x_box;
          });
        }
        ring.advance(p.x_slots);
      }
    }
  }
}

/// Keeps the ring of weight slabs full; resident weights are loaded once. The first pixels would
/// queue behind all slabs that were asked for before them: only `early_slabs` are.
__device__ __forceinline__ void produce_weights(const HaloParams& p, const Barriers& bar,
                                                std::uint32_t slots, Producer me) {
  Ring ring;
  int others = me.which, early = p.early_slabs;
  for (int t = blockIdx.x * p.sharers; t < p.tiles; t += gridDim.x * p.sharers) {
    for (int tile = t; tile < t + p.sharers; ++tile) {
      const int k = place(p, tile).k;
      for (int slab = 0; slab < p.slabs; ++slab) {
        if (early-- == 0) ptx::mbarrier_wait(bar.x_full(0), 0);
        if (others-- == 0) {
          others = me.of - 1;
          if (!p.resident) ptx::mbarrier_wait(bar.w_empty(ring.slot), ring.parity ^ 1);
          const std::uint32_t full = bar.w_full(ring.slot);
          ptx::mbarrier_arrive_expect(full, p.w_slot);
          ptx::tma_load(slots + ring.slot * p.w_slot, &p.w, full, 0, k, slab * p.slab_taps);
        }
        ring.advance(p.w_slots);
      }
    }
    if (p.resident) return;
  }
}

}  // namespace convoy::cuda::sm90
