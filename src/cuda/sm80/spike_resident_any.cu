#include "cuda/sm80/spike_resident_kernels.hpp"
#include "cuda/sm80/spike_resident_lane.cuh"

namespace convoy::cuda::sm80 {

ResidentKernel resident_any() {
  return spike_resident<AnyNet<many_tasks>>;
}

}  // namespace convoy::cuda::sm80
