#include "cuda/sm80/window_epilogue.cuh"
#include "cuda/sm80/window_kernels.cuh"

namespace convoy::cuda::sm80 {

WindowKernel window_f32(const WindowTile& tile) {
  if (tile == half_large) return window<float, WindowShape<half_large>, Optimized>;
  if (tile == small) return window<float, WindowShape<small>, Optimized>;
  if (tile == half_small) return window<float, WindowShape<half_small>, Optimized>;
  if (tile == block_wide) return window<float, WindowShape<block_wide>, Optimized>;
  if (tile == narrow) return window<float, WindowShape<narrow>, Unlimited>;
  if (tile == narrow_shared) return window<float, WindowShape<narrow_shared>, Unlimited>;
  return nullptr;
}

}  // namespace convoy::cuda::sm80
