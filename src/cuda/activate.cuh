// From a sum to its activation, with the same bits in every kernel.
//
// Kernels of one arithmetic round, activate and pool in different orders. What makes that harmless:
// every step keeps the order of values, where -0 lies below +0 and NaN, of which there is one,
// above all; and no sum is -0.
#pragma once

#include "cuda/clamp.hpp"
#include "cuda/ptx/sync.cuh"

namespace convoy::cuda {

/// What to add to a sum for its bias: never -0, so that sums that are 0 of either sign, which
/// padding and the order of products decide, become +0.
__device__ __forceinline__ float positive_zero(float bias) {
  return bias + 0.0f;
}

__device__ __forceinline__ float activate(const Clamp& act, float v) {
  if (act.slope != 1.0f) v = v < 0.0f ? v * act.slope : v;
  return ptx::min_nan(ptx::max_nan(v, act.low), act.high);
}

}  // namespace convoy::cuda
