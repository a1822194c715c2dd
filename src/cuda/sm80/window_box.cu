#include "cuda/sm80/window_box.cuh"
#include "cuda/sm80/window_kernels.cuh"

namespace convoy::cuda::sm80 {

WindowKernel window_boxes(DType type, int parts) {
  return for_16_bits(type, [&]<class T>() -> WindowKernel {
    return parts == 1 ? window_box<T, 1> : window_box<T, 2>;
  });
}

}  // namespace convoy::cuda::sm80
