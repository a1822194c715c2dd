#include "cuda/sm80/spike_resident_kernels.hpp"
#include "cuda/sm90/spike_resident_few.cuh"
#include "cuda/sm90/spike_resident_lane.cuh"

namespace convoy::cuda::sm90 {
namespace {

template <class Net>
__global__ void __launch_bounds__(warps_of_cta * 32, 1)
    spike_resident_few(const __grid_constant__ ResidentParams params) {
  extern __shared__ __align__(128) unsigned char shared[];
  few_images_cta<Net>(lane_of_warpgroup(shared), params, static_cast<int>(blockIdx.x),
                      static_cast<int>(gridDim.x));
}

}  // namespace
}  // namespace convoy::cuda::sm90

namespace convoy::cuda::sm80 {

ResidentKernel resident_fashion_warpgroups_few_inner() {
  return sm90::spike_resident_few<WithInner<KnownNet<FashionNet, few_tasks>>>;
}

}  // namespace convoy::cuda::sm80
