#include "cuda/sm90/halo_neuron_spread.cuh"

namespace convoy::cuda::sm90 {
NeuronKernel find_neuron_spread_f16(Accumulator wanted, PoolKind pool) {
  return find_neuron<HaloNeuronSpreadKernels<__half>>(wanted, pool);
}
}  // namespace convoy::cuda::sm90
