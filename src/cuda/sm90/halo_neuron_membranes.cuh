// Neurons of the halo family: which tile and step a CTA takes, where a thread's membranes lie, how
// they are charged.
#pragma once

#include "cuda/charge.cuh"
#include "cuda/sm90/halo.cuh"
#include "cuda/sm90/halo_neuron_params.hpp"

namespace convoy::cuda::sm90 {

/// The rules of a compiled kernel: sums, membranes and what halo needs fit into 232 registers.
template <int N, int I>
concept NeuronAccumulator = N* I / 2 <= 64;
template <int N, int I, PoolKind Pool, int TimeSteps>
concept NeuronStepsAccumulator = requires {
  requires N* I / 2 * (TimeSteps + 1) / TimeSteps <= 168;
  requires N % (8 * TimeSteps) == 0;  // a pixel's steps are in one instruction
  requires Pool == PoolKind::none || N % (16 * TimeSteps) == 0;
};

using NeuronKernel = void (*)(NeuronParams);

/// Of `Kernels`, which has `accumulators`, and `of<N, I>(pool)` for each of them: null where there
/// is none, as halo_of.
template <class Kernels>
NeuronKernel find_neuron(Accumulator wanted, PoolKind pool) {
  constexpr auto& all = Kernels::accumulators;
  NeuronKernel found = nullptr;
  [&]<std::size_t... Entry>(std::index_sequence<Entry...>) {
    (void)((all[Entry] == wanted &&
            ((found = Kernels::template of<all[Entry].n, all[Entry].instructions>(pool)), true)) ||
           ...);
  }
  (std::make_index_sequence<all.size()>{});
  return found;
}

/// The last tiles of some CTAs lie behind the last image: they are computed, and clipped.
__device__ __forceinline__ NeuronPlace place(const NeuronParams& p, int t) {
  const auto [tile, turn] = turn_of(t, p.by_grid, p.by_turns, p.at.pingpong);
  return {place(static_cast<const HaloParams&>(p), tile), turn * p.at.time_steps};
}

__device__ __forceinline__ void store_box(const NeuronParams& p, const NeuronPlace& at,
                                          std::uint32_t buffer, int k, int x, int y, int n) {
  if (p.at.images)
    ptx::tma_store(&p.y, buffer, k, n, at.step, x, y);
  else
    ptx::tma_store(&p.y, buffer, k, x, at.step, y, n);
}

/// Where in [n,P,Q,K] a thread's membranes lie.
struct Membranes {
  const NeuronParams& p;
  int n, x, y, k;        // of accumulator 0
  int group_x, group_y;  // pixels from one group of eight columns to the next; not in a brick
  int right;             // membranes from an even column to the odd one beside it

  __device__ __forceinline__ Membranes(const NeuronParams& params, const Place& at, int g)
      : p(params) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, column = 2 * (lane % 4);
    n = at.n + (p.at.images ? column : 0);
    x = at.x + g * p.at.warpgroup_columns + (p.at.images ? 0 : column);
    y = at.y + g * p.at.warpgroup_rows;
    k = at.k + g * p.at.warpgroup_channels + 16 * warp + lane / 4;
    group_x = p.at.images ? 1 : p.line ? 8 : 0;
    group_y = p.at.images || p.line ? 0 : 1;
    right = p.at.images ? p.cells_x * p.cells_y * p.post.k : p.post.k;
  }
  /// Calls `body(i, e, membrane, there)` for each of M accumulators of I instructions: `there` says
  /// whether the stage has that membrane.
  template <int I, int M, class Body>
  __device__ __forceinline__ void each(Body body) const {
    const bool channels[2] = {k < p.post.k, k + 8 < p.post.k};
#pragma unroll
    for (int i = 0; i < I; ++i) {
      int across = 0, down = 0;  // of a group's pixel in its brick
#pragma unroll
      for (int group = 0; group < M / 4; ++group) {
        const bool brick = p.brick_w > 0;
        const int its_x = x + i * p.instruction_x + (brick ? across : group * group_x);
        const int its_y = y + (brick ? down : p.at.images ? i : group * group_y);
        const int its_n = n + (p.at.images ? 0 : i * p.instruction_n);
        if (++across == p.brick_w) across = 0, ++down;
        const bool inside = its_x < p.cells_x && its_y < p.cells_y && its_n < p.cells_n;
        const bool pixels[2] = {
            inside, inside && (p.at.images ? its_n + 1 < p.cells_n : its_x + 1 < p.cells_x)};
        const int first = membrane_at(its_n, its_y, its_x, p.cells_y, p.cells_x, p.post.k, k);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          body(i, 4 * group + e, first + e % 2 * right + e / 2 * 8,
               pixels[e % 2] && channels[e / 2]);
      }
    }
  }
};

/// Calls `body(i, e)` for each of M membranes of I instructions.
template <int I, int M, class Body>
__device__ __forceinline__ void each_of(Body body) {
#pragma unroll
  for (int i = 0; i < I; ++i) {
#pragma unroll
    for (int e = 0; e < M; ++e) body(i, e);
  }
}

/// The membranes of a tile's first time step: those that are given, or zero.
template <int I, int M>
__device__ __forceinline__ void begin_membranes(const NeuronParams& p, const NeuronPlace& at, int g,
                                                float (&v)[I][M]) {
  if (at.step != 0) return;
  if (p.membrane_in == nullptr) {
    each_of<I, M>([&](int i, int e) { v[i][e] = 0.0f; });
    return;
  }
  Membranes(p, at, g).each<I, M>([&](int i, int e, int membrane, bool there) {
    v[i][e] = there ? p.membrane_in[membrane] : 0.0f;
  });
}
/// Those after the last one, where they are wanted.
template <int I, int M>
__device__ __forceinline__ void end_membranes(const NeuronParams& p, const NeuronPlace& at, int g,
                                              const float (&v)[I][M]) {
  if (p.membrane_out == nullptr || at.step + p.at.time_steps != p.turns * p.at.time_steps) return;
  Membranes(p, at, g).each<I, M>([&](int i, int e, int membrane, bool there) {
    if (there) p.membrane_out[membrane] = v[i][e];
  });
}

/// Calls `body.operator()<Soft>()` with how the stage resets: to choose for each membrane takes as
/// long as the reset.
template <class Body>
__device__ __forceinline__ void with_reset(bool soft, Body body) {
  if (soft)
    body.template operator()<true>();
  else
    body.template operator()<false>();
}
/// A charged membrane after the spike that it may fire.
template <bool Soft>
__device__ __forceinline__ float reset(const NeuronParams& p, float v) {
  return math::reset(v, p.threshold, math::fire(v, p.threshold), Soft);
}

/// A charged membrane, read as the spike that it fires.
struct Spike {
  float v, threshold;
  __device__ __forceinline__ operator float() const { return math::fire(v, threshold); }
};
/// The greatest spike of a window is that of its highest membrane; one that is no number fires
/// none, and is left out by fmaxf.
__device__ __forceinline__ float max4(const Spike& a, const Spike& b, const Spike& c,
                                      const Spike& d) {
  return math::fire(fmaxf(fmaxf(a.v, b.v), fmaxf(c.v, d.v)), a.threshold);
}

/// Charged membranes as accumulators are read.
template <int N, int I>
struct Spikes {
  const float (&v)[I][N / 2];
  float threshold;
  struct Instruction {
    const float (&v)[N / 2];
    float threshold;
    __device__ __forceinline__ Spike operator[](int e) const { return {v[e], threshold}; }
  };
  __device__ __forceinline__ Instruction operator[](int i) const { return {v[i], threshold}; }
};

template <int N, int I>
constexpr bool gives_spikes<Spikes<N, I>> = true;

}  // namespace convoy::cuda::sm90
