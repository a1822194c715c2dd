// halo with a neuron, where places are few: a cluster's CTAs take the steps of a place between them
// (HaloTile::spread). Each makes the sums of its own steps, and they do the neurons by parts.
#pragma once

#include "cuda/sm90/halo_neuron_exchange.cuh"

namespace convoy::cuda::sm90 {

template <class T, int N, int I, PoolKind Pool>
requires NeuronAccumulator<N, I> __global__ void __launch_bounds__(halo_threads, 1)
    halo_neuron_spread(const __grid_constant__ NeuronParams p) {
  float v[N * I / 4];  // a half of the accumulators at most
  int exchanges = 0;
  init_exchange(p);
  run_cta<T, N, I, 4>(p, [&](float(&d)[I][N / 2], const float(&bias)[2], const NeuronPlace& at,
                             std::uint32_t staging, int g) {
    NeuronPlace to = at;
    to.n -= at.step * p.step_n;
    to.x -= at.step * p.step_x;
    each_accumulator<N, I>(
        [&](int i, int e) { d[i][e] = __fadd_rn(d[i][e], positive_zero(bias[e / 2 % 2])); });
    SpikeBits<N, I> spikes;
    if (p.spread == 1)
      step_together<N, I, 2>(p, v, d, to, g, exchanges++ & 1, spikes);
    else
      step_together<N, I, 4>(p, v, d, to, g, exchanges++ & 1, spikes);
    const float none[2] = {0.0f, 0.0f};
    store_tile<T, N, I, Pool>(p, spikes, none, to, staging, g);
  });
  end_exchange(p);
}

template <class T>
struct HaloNeuronSpreadKernels {
  template <int N, int I, PoolKind Pool>
  static constexpr NeuronKernel of = halo_neuron_spread<T, N, I, Pool>;
};

}  // namespace convoy::cuda::sm90
