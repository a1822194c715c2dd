#include "cuda/sm90/halo_neuron_spread.cuh"

namespace convoy::cuda::sm90 {
NeuronKernel find_neuron_spread_bf16(Accumulator wanted, PoolKind pool) {
  return find_neuron<HaloNeuronSpreadKernels<__nv_bfloat16>>(wanted, pool);
}
}  // namespace convoy::cuda::sm90
