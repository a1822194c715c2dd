#include "cuda/sm90/halo_neuron.cuh"

namespace convoy::cuda::sm90 {
NeuronKernel find_neuron_bf16(Accumulator wanted, PoolKind pool) {
  return find_neuron<HaloNeuronKernels<__nv_bfloat16>>(wanted, pool);
}
}  // namespace convoy::cuda::sm90
