#include "cuda/sm90/halo_sums.cuh"

namespace convoy::cuda::sm90 {
HaloKernel find_halo_sums_bf16(Accumulator wanted) {
  return find_halo_sums<__nv_bfloat16>(wanted);
}
}  // namespace convoy::cuda::sm90
