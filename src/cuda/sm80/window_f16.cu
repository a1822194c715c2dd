#include "cuda/sm80/window_epilogue.cuh"
#include "cuda/sm80/window_kernels.cuh"

namespace convoy::cuda::sm80 {

WindowKernel window_f16(const WindowTile& tile) {
  if (tile == largest) return window<__half, WindowShape<largest>, Optimized>;
  if (tile == large) return window<__half, WindowShape<large>, Optimized>;
  if (tile == half_large) return window<__half, WindowShape<half_large>, Optimized>;
  if (tile == small) return window<__half, WindowShape<small>, Optimized>;
  if (tile == wide_pairs) return window<__half, WindowShape<wide_pairs>, Optimized>;
  if (tile == tall_pairs) return window<__half, WindowShape<tall_pairs>, Optimized>;
  if (tile == large_pairs) return window<__half, WindowShape<large_pairs>, Optimized>;
  if (tile == block_wide) return window<__half, WindowShape<block_wide>, Optimized>;
  if (tile == narrow) return window<__half, WindowShape<narrow>, Unlimited>;
  if (tile == narrow_shared) return window<__half, WindowShape<narrow_shared>, Unlimited>;
  if (tile == large_analytic) return window<__half, WindowShape<large_analytic>, Analytic>;
  if (tile == large_precomputed) return window<__half, WindowShape<large_precomputed>, Precomputed>;
  return nullptr;
}

}  // namespace convoy::cuda::sm80
