// halo with a neuron: y = pool(spikes(conv(x, w) + bias)) over T steps, in one launch.
//
// The main loop is halo's. A CTA takes the T tiles of a place one after the other, and each thread
// keeps the membranes of its accumulators in registers between them: a tile is therefore at most
// half of what halo's may be. With a held input the sums are made once, and the steps are the
// epilogue's. Every pixel has a membrane, pooled or not, so that tiles cover the whole plane of the
// convolution's output.
#pragma once

#include <cmath>

#include "cuda/sm90/halo.cuh"
#include "cuda/sm90/halo_neuron_params.hpp"
#include "math/activation.hpp"

namespace convoy::cuda::sm90 {

/// The rule of a compiled kernel: sums, membranes and what halo needs fit into 232 registers.
template <int N, int I>
concept NeuronAccumulator = N* I / 2 <= 64;

// ---------------------------------------------------------------------------------- the walk

/// A tile of x: its first image, or first pixel of a line, is that of its step.
struct NeuronPlace : Place {
  int step;
};

/// The last tiles of some CTAs lie behind the last image: they are computed, and clipped.
__device__ __forceinline__ NeuronPlace place(const NeuronParams& p, int t) {
  const auto [tile, step] = turn_of(t, p.by_grid, p.by_turns, p.at.pingpong);
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

// ---------------------------------------------------------------------------------- membranes

/// Calls `body(i, e, membrane)` with the place in [n,P,Q,K] of each of a thread's accumulators
/// d[i][e] that exists. `at`: of the first step.
template <int N, int I, class Body>
__device__ __forceinline__ void each_membrane(const NeuronParams& p, const Place& at, int g,
                                              Body body) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, k = p.epilogue.k;
  const int first_k = at.k + g * p.at.warpgroup_channels + 16 * warp + lane / 4;
  const int first_x = at.x + g * p.at.warpgroup_columns, first_y = at.y + g * p.at.warpgroup_rows;
#pragma unroll
  for (int i = 0; i < I; ++i) {
#pragma unroll
    for (int e = 0; e < N / 2; ++e) {
      const int group = e / 4, column = 2 * (lane % 4) + e % 2, channel = first_k + e / 2 % 2 * 8;
      const bool images = p.at.images, line = p.line;
      const int x = first_x +
                    (images ? group
                     : line ? 8 * group + column
                            : column) +
                    i * p.instruction_x;
      const int y = first_y + (images ? i : line ? 0 : group);
      const int n = at.n + (images ? column : i * p.instruction_n);
      if (channel < k && x < p.cells_x && y < p.cells_y && n < p.cells_n)
        body(i, e, ((Index{n} * p.cells_y + y) * p.cells_x + x) * k + channel);
    }
  }
}

/// A quotient by tau with one rounding, as `/` has it, by three multiplications. (Below the normal
/// numbers its last bit may differ.)
__device__ __forceinline__ float divided(float x, float tau, float by_tau) {
  const float q = __fmul_rn(x, by_tau);
  const float corrected = fmaf(fmaf(-q, tau, x), by_tau, q);
  return fabsf(q) < INFINITY ? corrected : q;
}

/// math::charge. Written so that no product and sum become one operation.
template <Charge By>
__device__ __forceinline__ float charged(const NeuronParams& p, float v, float x) {
  if constexpr (By == Charge::add) return __fadd_rn(v, x);
  const float to = __fadd_rn(x, -v);
  if constexpr (By == Charge::scale) return __fadd_rn(v, __fmul_rn(to, p.by_tau));
  return __fadd_rn(v, divided(to, p.tau, p.by_tau));
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
  const auto by = [&]<Charge By>() {
    each_accumulator<N, I>([&](int i, int e) { v[i][e] = charged<By>(p, v[i][e], sums[i][e]); });
  };
  if (p.charge == Charge::add)
    by.template operator()<Charge::add>();
  else if (p.charge == Charge::scale)
    by.template operator()<Charge::scale>();
  else
    by.template operator()<Charge::divide>();
}

/// Charged membranes, read as the spikes that they fire.
template <int N, int I>
struct Spikes {
  const float (&v)[I][N / 2];
  float threshold;
  struct Instruction {
    const float (&v)[N / 2];
    float threshold;
    __device__ __forceinline__ float operator[](int e) const { return math::fire(v[e], threshold); }
  };
  __device__ __forceinline__ Instruction operator[](int i) const { return {v[i], threshold}; }
};

// ---------------------------------------------------------------------------------- the kernel

template <class T, int N, int I, PoolKind Pool>
requires NeuronAccumulator<N, I> __global__ void __launch_bounds__(halo_threads, 1)
    halo_neuron(const __grid_constant__ NeuronParams p) {
  float v[I][N / 2];
  run_cta<T, N, I, 4>(p, [&](float(&d)[I][N / 2], const float(&bias)[2], const NeuronPlace& at,
                             std::uint32_t staging, int g) {
    NeuronPlace to = at;
    to.n -= at.step * p.step_n;
    to.x -= at.step * p.step_x;
    if (at.step == 0) {
      each_accumulator<N, I>([&](int i, int e) { v[i][e] = 0.0f; });
      if (p.membrane_in != nullptr)
        each_membrane<N, I>(p, to, g, [&](int i, int e, Index m) { v[i][e] = p.membrane_in[m]; });
    }
    each_accumulator<N, I>(
        [&](int i, int e) { d[i][e] = __fadd_rn(d[i][e], positive_zero(bias[e / 2 % 2])); });
    for (int held = 0; held < p.held; ++held, ++to.step) {
      charge_all<N, I>(p, v, d);
      const float none[2] = {0.0f, 0.0f};
      store_tile<T, N, I, Pool>(p, Spikes<N, I>{v, p.threshold}, none, to, staging, g);
      each_accumulator<N, I>([&](int i, int e) {
        v[i][e] = math::reset(v[i][e], p.threshold, math::fire(v[i][e], p.threshold), p.soft);
      });
    }
    if (p.membrane_out != nullptr && at.step + 1 == p.turns)
      each_membrane<N, I>(p, to, g, [&](int i, int e, Index m) { p.membrane_out[m] = v[i][e]; });
  });
}

// ---------------------------------------------------------------------------------- what there is

using NeuronKernel = void (*)(NeuronParams);

/// Null where there is none, as halo_of.
template <class T, int N, int I>
NeuronKernel neuron_of(PoolKind pool) {
  if (pool == PoolKind::none) return halo_neuron<T, N, I, PoolKind::none>;
  if (pool == PoolKind::pixels) return halo_neuron<T, N, I, PoolKind::pixels>;
  if constexpr (I % 2 == 0) return halo_neuron<T, N, I, PoolKind::images>;
  return nullptr;
}

template <class T>
NeuronKernel find_neuron(Accumulator wanted, PoolKind pool) {
  NeuronKernel found = nullptr;
  [&]<std::size_t... Entry>(std::index_sequence<Entry...>) {
    constexpr auto& all = neuron_accumulators;
    (void)((all[Entry] == wanted &&
            ((found = neuron_of<T, all[Entry].n, all[Entry].instructions>(pool)), true)) ||
           ...);
  }
  (std::make_index_sequence<neuron_accumulators.size()>{});
  return found;
}

}  // namespace convoy::cuda::sm90
