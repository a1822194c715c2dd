// halo with a neuron: y = pool(spikes(conv(x, w) + bias)) over T steps, in one launch.
//
// The main loop is halo's. A CTA takes the T tiles of a place one after the other, and each thread
// keeps the membranes of its accumulators in registers between them: a tile is therefore at most
// half of what halo's may be. With a held input the sums are made once, and the steps are the
// epilogue's. Every pixel has a membrane, pooled or not, so that tiles cover the whole plane of the
// convolution's output.
//
// A tile that has several time steps of each pixel: halo_neuron_steps.cuh.
#pragma once

#include "cuda/sm90/halo_neuron_membranes.cuh"

namespace convoy::cuda::sm90 {

template <class T, int N, int I, PoolKind Pool>
requires NeuronAccumulator<N, I> __global__ void __launch_bounds__(halo_threads, 1)
    halo_neuron(const __grid_constant__ NeuronParams p) {
  constexpr int sums = N / 2;
  float v[I][sums];
  run_cta<T, N, I, row_steps>(p, [&](Sum<T>(&d)[I][sums], const float(&bias)[2],
                                     const NeuronPlace& at, std::uint32_t staging, int g) {
    NeuronPlace to = at;
    begin_membranes(p, at, g, v);
    each_of<I, sums>(
        [&](int i, int e) { d[i][e] = __fadd_rn(d[i][e], PostOps::addend(bias[e / 2 % 2])); });
    for (int held = 0; held < p.held; ++held, ++to.step) {
      with_charge(p.charge, [&]<Charge By>() {
        each_of<I, sums>([&](int i, int e) { v[i][e] = charged<By>(p, v[i][e], d[i][e]); });
      });
      const float none[2] = {0.0f, 0.0f};
      store_tile<T, N, I, Pool>(p, Spikes<N, I>{v, p.threshold}, none, to, staging, g);
      with_reset(p.soft, [&]<bool Soft>() {
        each_of<I, sums>([&](int i, int e) { v[i][e] = reset<Soft>(p, v[i][e]); });
      });
    }
    end_membranes(p, at, g, v);
  });
}

template <class T>
struct HaloNeuronKernels {
  static constexpr auto& accumulators = neuron_accumulators;
  template <int N, int I>
  static NeuronKernel of(PoolKind pool) {
    if (pool == PoolKind::none) return halo_neuron<T, N, I, PoolKind::none>;
    if (pool == PoolKind::pixels) return halo_neuron<T, N, I, PoolKind::pixels>;
    if constexpr (I % 2 == 0) return halo_neuron<T, N, I, PoolKind::images>;
    return nullptr;
  }
};

}  // namespace convoy::cuda::sm90
