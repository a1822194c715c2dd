#include "cuda/sm80/window_epilogue.cuh"
#include "cuda/sm80/window_kernels.cuh"

namespace convoy::cuda::sm80 {

WindowKernel window_f32(const WindowTile& tile) {
  if (tile == half_large) return window<float, WindowShape<half_large>, Optimized>;
  if (tile == small) return window<float, WindowShape<small>, Optimized>;
  if (tile == block_wide) return window<float, WindowShape<block_wide>, Optimized>;
  if (tile == narrow) return window<float, WindowShape<narrow>, Analytic>;
  return nullptr;
}

}  // namespace convoy::cuda::sm80
