#include "cuda/sm90/halo_launch.cuh"

namespace convoy::cuda::sm90 {
HaloKernel find_halo_bf16(Accumulator wanted, PoolKind pool, int steps) {
  return find_halo<__nv_bfloat16>(wanted, pool, steps);
}
}  // namespace convoy::cuda::sm90
