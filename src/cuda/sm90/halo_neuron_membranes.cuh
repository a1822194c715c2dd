// Neurons of the halo family: which tile and step a CTA takes, where a thread's membranes lie, how
// they are charged.
#pragma once

#include "cuda/charge.cuh"
#include "cuda/sm90/halo.cuh"
#include "cuda/sm90/halo_neuron_params.hpp"

namespace convoy::cuda::sm90 {

/// The rule of a compiled kernel: sums, membranes and what halo needs fit into 232 registers.
template <int N, int I>
concept NeuronAccumulator = N* I / 2 <= 64;

using NeuronKernel = void (*)(NeuronParams);

/// One of `Kernels`, which has `of<N, I, Pool>`. Null where there is none, as halo_of.
template <class Kernels, int N, int I>
NeuronKernel neuron_of(PoolKind pool) {
  if (pool == PoolKind::none) return Kernels::template of<N, I, PoolKind::none>;
  if (pool == PoolKind::pixels) return Kernels::template of<N, I, PoolKind::pixels>;
  if constexpr (I % 2 == 0) return Kernels::template of<N, I, PoolKind::images>;
  return nullptr;
}

template <class Kernels>
NeuronKernel find_neuron(Accumulator wanted, PoolKind pool) {
  NeuronKernel found = nullptr;
  [&]<std::size_t... Entry>(std::index_sequence<Entry...>) {
    constexpr auto& all = neuron_accumulators;
    (void)((all[Entry] == wanted &&
            ((found = neuron_of<Kernels, all[Entry].n, all[Entry].instructions>(pool)), true)) ||
           ...);
  }
  (std::make_index_sequence<neuron_accumulators.size()>{});
  return found;
}

/// A tile of x: its first image, or first pixel of a line, is that of its step.
struct NeuronPlace : Place {
  int step;
};

/// The last tiles of some CTAs lie behind the last image: they are computed, and clipped.
__device__ __forceinline__ NeuronPlace place(const NeuronParams& p, int t) {
  const auto [tile, step] = turn_of(t, p.by_grid, p.by_turns, p.at.pingpong, p.spread);
  Place at = place(static_cast<const HaloParams&>(p), tile);
  at.n += step * p.step_n;
  at.x += step * p.step_x;
  return {at, step};
}

__device__ __forceinline__ void store_box(const NeuronParams& p, const NeuronPlace& at,
                                          std::uint32_t buffer, int k, int x, int y, int n) {
  if (p.at.images)
    ptx::tma_store(&p.y, buffer, k, n, x, y, at.step);
  else
    ptx::tma_store(&p.y, buffer, k, x, y, n, at.step);
}

/// Where in [n,P,Q,K] a thread's membranes lie. `at`: of the first step.
struct Membranes {
  const NeuronParams& p;
  int n, x, y, k;  // of accumulator 0
  int column;

  __device__ __forceinline__ Membranes(const NeuronParams& params, const Place& at, int g)
      : p(params) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    n = at.n;
    x = at.x + g * p.at.warpgroup_columns;
    y = at.y + g * p.at.warpgroup_rows;
    k = at.k + g * p.at.warpgroup_channels + 16 * warp + lane / 4;
    column = 2 * (lane % 4);
  }
  /// Calls `body(membrane)` where accumulator d[i][e] has one.
  template <class Body>
  __device__ __forceinline__ void at(int i, int e, Body body) const {
    const int group = e / 4, right = column + e % 2, channel = k + e / 2 % 2 * 8;
    const int to_right = p.at.images ? group : p.line ? 8 * group + right : right;
    const int its_x = x + to_right + i * p.instruction_x;
    const int its_y = y + (p.at.images ? i : p.line ? 0 : group);
    const int its_n = n + (p.at.images ? right : i * p.instruction_n);
    if (channel < p.epilogue.k && its_x < p.cells_x && its_y < p.cells_y && its_n < p.cells_n)
      body(((Index{its_n} * p.cells_y + its_y) * p.cells_x + its_x) * p.epilogue.k + channel);
  }
};

/// Calls `body(i, e, membrane)` for each of a thread's accumulators that has one.
template <int N, int I, class Body>
__device__ __forceinline__ void each_membrane(const NeuronParams& p, const Place& at, int g,
                                              Body body) {
  const Membranes membranes(p, at, g);
#pragma unroll
  for (int i = 0; i < I; ++i) {
#pragma unroll
    for (int e = 0; e < N / 2; ++e)
      membranes.at(i, e, [&](Index membrane) { body(i, e, membrane); });
  }
}

template <int N, int I, class Body>
__device__ __forceinline__ void each_accumulator(Body body) {
#pragma unroll
  for (int i = 0; i < I; ++i) {
#pragma unroll
    for (int e = 0; e < N / 2; ++e) body(i, e);
  }
}

template <int N, int I>
__device__ __forceinline__ void charge_all(const NeuronParams& p, float (&v)[I][N / 2],
                                           const float (&sums)[I][N / 2]) {
  with_charge(p.charge, [&]<Charge By>() {
    each_accumulator<N, I>([&](int i, int e) { v[i][e] = charged<By>(p, v[i][e], sums[i][e]); });
  });
}

/// The membranes after the spikes that they fire.
template <int N, int I>
__device__ __forceinline__ void reset_all(const NeuronParams& p, float (&v)[I][N / 2]) {
  const auto all = [&]<bool Soft>() {
    each_accumulator<N, I>([&](int i, int e) {
      v[i][e] = math::reset(v[i][e], p.threshold, math::fire(v[i][e], p.threshold), Soft);
    });
  };
  // One of them each time: to choose for each membrane takes as long as the reset.
  if (p.soft)
    all.template operator()<true>();
  else
    all.template operator()<false>();
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
