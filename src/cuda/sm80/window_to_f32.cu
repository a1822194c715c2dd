#include "cuda/sm80/window_epilogue.cuh"
#include "cuda/sm80/window_kernels.cuh"

namespace convoy::cuda::sm80 {
namespace {

template <class T>
WindowKernel kernel_of(const WindowTile& tile) {
  if (tile == half_large) return window<T, WindowShape<half_large>, Optimized, float>;
  if (tile == small) return window<T, WindowShape<small>, Optimized, float>;
  if (tile == block_wide) return window<T, WindowShape<block_wide>, Optimized, float>;
  if (tile == narrow) return window<T, WindowShape<narrow>, Unlimited, float>;
  return nullptr;
}

}  // namespace

WindowKernel window_to_f32(DType type, const WindowTile& tile) {
  return type == DType::f16 ? kernel_of<__half>(tile) : kernel_of<__nv_bfloat16>(tile);
}

}  // namespace convoy::cuda::sm80
