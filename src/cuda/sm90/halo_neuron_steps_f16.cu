#include "cuda/sm90/halo_neuron_steps.cuh"

namespace convoy::cuda::sm90 {
NeuronKernel find_neuron_steps_f16(Accumulator wanted, PoolKind pool, int time_steps) {
  return find_neuron_steps<__half>(wanted, pool, time_steps);
}
}  // namespace convoy::cuda::sm90
