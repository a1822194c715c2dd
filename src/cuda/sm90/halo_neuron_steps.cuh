// halo with a neuron, whose tile has several time steps of each pixel (HaloTile::time_steps).
//
// To the convolution the rows of a tile are rows of pixels in one step after the other: a tap's row
// is so many rows further down, as with a dilation. Groups of eight columns are a row of a step, so
// that a thread has the sums of its pixels in all of these steps. It charges a membrane with them
// one after the other, in the accumulators, and needs a register for so many times fewer membranes:
// tiles may be as large as halo's, and the steps of few pixels fill the GPU.
#pragma once

#include "cuda/sm90/halo_neuron_membranes.cuh"

namespace convoy::cuda::sm90 {

template <class T, int N, int I, PoolKind Pool, int TimeSteps>
requires NeuronStepsAccumulator<N, I, Pool, TimeSteps> __global__ void __launch_bounds__(
    halo_threads, 1) halo_neuron_steps(const __grid_constant__ NeuronParams p) {
  constexpr int membranes = N / 2 / TimeSteps;
  float v[I][membranes];
  run_cta<T, N, I, row_steps>(p, [&](Sum<T>(&d)[I][N / 2], const float(&bias)[2],
                                     const NeuronPlace& at, std::uint32_t staging, int g) {
    begin_membranes(p, at, g, v);
    const float its_bias[2] = {PostOps::addend(bias[0]), PostOps::addend(bias[1])};
    with_charge(p.charge, [&]<Charge By>() {
      with_reset(p.soft, [&]<bool Soft>() {
        each_of<I, membranes>([&](int i, int e) {
#pragma unroll
          for (int step = 0; step < TimeSteps; ++step) {
            Sum<T>& sum = d[i][4 * (e / 4 * TimeSteps + step) + e % 4];
            sum = charged<By>(p, v[i][e], __fadd_rn(sum, its_bias[e / 2 % 2]));
            v[i][e] = reset<Soft>(p, sum);
          }
        });
      });
    });
    const float none[2] = {0.0f, 0.0f};
    store_tile<T, N, I, Pool, TimeSteps>(p, Spikes<N, I>{d, p.threshold}, none, at, staging, g);
    end_membranes(p, at, g, v);
  });
}

template <class T, int TimeSteps>
struct HaloNeuronStepsKernels {
  static constexpr auto& accumulators = accumulators_of(TimeSteps);
  template <int N, int I>
  static NeuronKernel of(PoolKind pool) {
    if (pool == PoolKind::none) return halo_neuron_steps<T, N, I, PoolKind::none, TimeSteps>;
    if (pool == PoolKind::pixels) return halo_neuron_steps<T, N, I, PoolKind::pixels, TimeSteps>;
    return nullptr;
  }
};

template <class T>
NeuronKernel find_neuron_steps(Accumulator wanted, PoolKind pool, int time_steps) {
  return time_steps == 4 ? find_neuron<HaloNeuronStepsKernels<T, 4>>(wanted, pool)
                         : find_neuron<HaloNeuronStepsKernels<T, 2>>(wanted, pool);
}

}  // namespace convoy::cuda::sm90
