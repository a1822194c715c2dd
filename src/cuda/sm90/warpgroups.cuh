// The warpgroups of a CTA: who a thread is, and the barriers among some of them.
#pragma once

#include "cuda/ptx/sync.cuh"

namespace convoy::cuda::sm90 {

constexpr int warpgroup_threads = 128, warpgroup_warps = 4;

/// Warpgroup of this thread, so that the compiler sees one value a warp.
__device__ __forceinline__ int warpgroup_of_thread() {
  return __shfl_sync(0xFFFFFFFF, threadIdx.x / warpgroup_threads, 0);
}
/// The one thread of a warpgroup that issues stores for it.
__device__ __forceinline__ bool leads_warpgroup() {
  return threadIdx.x % warpgroup_threads == 0;
}

/// Named barriers of a CTA, beside that of __syncthreads.
enum class NamedBarrier : int { warpgroup0 = 1, warpgroup1, warpgroup2, warpgroup3, consumers };

/// All threads of warpgroup g, which must be the caller's.
__device__ __forceinline__ void sync_warpgroup(int g) {
  ptx::bar_sync(static_cast<int>(NamedBarrier::warpgroup0) + g, warpgroup_threads);
}
/// All threads of warpgroups 0 and 1.
__device__ __forceinline__ void sync_consumers() {
  ptx::bar_sync(static_cast<int>(NamedBarrier::consumers), 2 * warpgroup_threads);
}

}  // namespace convoy::cuda::sm90
