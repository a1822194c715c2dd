#include "cuda/sm80/window_epilogue.cuh"
#include "cuda/sm80/window_kernels.cuh"

namespace convoy::cuda::sm80 {

WindowKernel window_bf16(const WindowTile& tile) {
  if (tile == largest) return window<__nv_bfloat16, WindowShape<largest>, Optimized>;
  if (tile == large) return window<__nv_bfloat16, WindowShape<large>, Optimized>;
  if (tile == half_large) return window<__nv_bfloat16, WindowShape<half_large>, Optimized>;
  if (tile == small) return window<__nv_bfloat16, WindowShape<small>, Optimized>;
  if (tile == wide_pairs) return window<__nv_bfloat16, WindowShape<wide_pairs>, Optimized>;
  if (tile == tall_pairs) return window<__nv_bfloat16, WindowShape<tall_pairs>, Optimized>;
  if (tile == large_pairs) return window<__nv_bfloat16, WindowShape<large_pairs>, Optimized>;
  if (tile == block_wide) return window<__nv_bfloat16, WindowShape<block_wide>, Optimized>;
  if (tile == narrow) return window<__nv_bfloat16, WindowShape<narrow>, Unlimited>;
  if (tile == narrow_shared) return window<__nv_bfloat16, WindowShape<narrow_shared>, Unlimited>;
  return nullptr;
}

}  // namespace convoy::cuda::sm80
