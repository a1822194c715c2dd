#include "cuda/sm90/halo_sums.cuh"

namespace convoy::cuda::sm90 {
HaloKernel find_halo_sums_f16(Accumulator wanted) {
  return find_halo_sums<__half>(wanted);
}
}  // namespace convoy::cuda::sm90
