#include "cuda/sm90/halo_neuron.cuh"

namespace convoy::cuda::sm90 {
NeuronKernel find_neuron_f16(Accumulator wanted, PoolKind pool) {
  return find_neuron<HaloNeuronKernels<__half>>(wanted, pool);
}
}  // namespace convoy::cuda::sm90
