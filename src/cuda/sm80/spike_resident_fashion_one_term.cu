#include "cuda/sm80/spike_resident_kernels.hpp"
#include "cuda/sm80/spike_resident_lane.cuh"

namespace convoy::cuda::sm80 {

ResidentKernel resident_fashion_one_term() {
  return spike_resident<KnownNet<FashionNet, known_many_tasks, 1>>;
}

}  // namespace convoy::cuda::sm80
