#include "cuda/sm80/spike_resident_kernels.hpp"
#include "cuda/sm80/spike_resident_lane.cuh"

namespace convoy::cuda::sm80 {

ResidentKernel resident_fashion_few() {
  return spike_resident<KnownNet<FashionNet, few_tasks>>;
}

}  // namespace convoy::cuda::sm80
