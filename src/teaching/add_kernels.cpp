#include "teaching/add_kernels.hpp"

#if defined(CONVOY_CUDA)
#include "plan/kernel_table.hpp"
#include "teaching/families.hpp"
#endif

namespace convoy::teaching {

void add_kernels() {
#if defined(CONVOY_CUDA)
  namespace family = cuda::teaching;
  const Kernel* const kernels[] = {
      &family::cutlass_pooled(),  // CUTLASS 2.x, max 2x2 by atomicMax
      // The ladder from the bottom to the top; 11 is its last rung without Tensor Cores.
      &family::ladder(0),
      &family::ladder(1),
      &family::ladder(2),
      &family::ladder(3),
      &family::ladder(4),
      &family::ladder(5),
      &family::ladder(6),
      &family::ladder(7),
      &family::ladder(8),
      &family::ladder(9),
      &family::ladder(10),
      &family::ladder(11),
  };
  convoy::add_kernels(kernels);
#endif
}

}  // namespace convoy::teaching
