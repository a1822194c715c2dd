// Barriers among threads, proxy fences, launch dependencies, and the few ALU instructions that C++
// has no word for.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace convoy::ptx {

/// Named barrier 1..15 among `threads` threads (whole warps). Barrier 0 is __syncthreads.
__device__ __forceinline__ void bar_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// Makes this thread's ordinary shared-memory writes visible to TMA and wgmma; a barrier must
/// follow.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Waits until the grids this one depends on have finished and their writes are visible. No-op
/// unless launched with programmatic stream serialization, which came with Hopper.
__device__ __forceinline__ void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void grid_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// IEEE 754-2019 maximum and minimum: a NaN wins, as in PyTorch, and is the one that arithmetic
/// makes; -0 lies below +0.
__device__ __forceinline__ float max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
#else
  return a != a || b != b ? __int_as_float(0x7fffffff) : fmaxf(a, b);
#endif
}
__device__ __forceinline__ float min_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float d;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
#else
  return a != a || b != b ? __int_as_float(0x7fffffff) : fminf(a, b);
#endif
}

/// The same on two packed 16-bit values.
template <class T>
__device__ __forceinline__ std::uint32_t max2_nan(std::uint32_t a, std::uint32_t b) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
  std::uint32_t d;
  if constexpr (std::is_same_v<T, __half>)
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  else
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
template <class T>
__device__ __forceinline__ std::uint32_t min2_nan(std::uint32_t a, std::uint32_t b) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
  std::uint32_t d;
  if constexpr (std::is_same_v<T, __half>)
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  else
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

}  // namespace convoy::ptx
