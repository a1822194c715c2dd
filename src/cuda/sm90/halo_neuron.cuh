// halo with a neuron: y = pool(spikes(conv(x, w) + bias)) over T steps, in one launch.
//
// The main loop is halo's. A CTA takes the T tiles of a place one after the other, and each thread
// keeps the membranes of its accumulators in registers between them: a tile is therefore at most
// half of what halo's may be. With a held input the sums are made once, and the steps are the
// epilogue's. Every pixel has a membrane, pooled or not, so that tiles cover the whole plane of the
// convolution's output.
//
// Where places are few, a cluster's CTAs take the steps of one between them:
// halo_neuron_spread.cuh.
#pragma once

#include "cuda/sm90/halo_neuron_membranes.cuh"

namespace convoy::cuda::sm90 {

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
      reset_all<N, I>(p, v);
    }
    if (p.membrane_out != nullptr && at.step + 1 == p.turns)
      each_membrane<N, I>(p, to, g, [&](int i, int e, Index m) { p.membrane_out[m] = v[i][e]; });
  });
}

template <class T>
struct HaloNeuronKernels {
  template <int N, int I, PoolKind Pool>
  static constexpr NeuronKernel of = halo_neuron<T, N, I, Pool>;
};

}  // namespace convoy::cuda::sm90
