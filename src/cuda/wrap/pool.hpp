// What is left of a stage when a family has written conv + bias, or its activation, to memory: the
// activation, any max-pool and its indices, near the speed of a copy.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/kernel.hpp"

namespace convoy::cuda {

/// `from` is dense [n,P,Q,K] in the stage's output type: conv + bias where `activate`, else after
/// the activation. Outputs but y may be null: y with its strides, act dense [n,P,Q,K], idx dense
/// [n,P',Q',K]. Where K is a multiple of 8, all on 16 bytes.
struct PoolRun {
  Index n = 0;
  const void* from = nullptr;
  bool activate = false;
  void* y = nullptr;
  Strides y_stride;
  void* act = nullptr;
  std::int32_t* idx = nullptr;
};

/// Loads the kernels for an output type on the current device. To be called once before
/// pool_launch; returns an empty string, or what went wrong.
std::string pool_ready(DType type);

/// Enqueues one launch, or two where `act` is wanted. No allocation, no synchronisation,
/// capturable. Returns an empty string, or what went wrong. The maximum is taken of values as the
/// output type holds them; the first one in row-major order gives the index, NaN wins.
/// `overlap_previous`: as of Launch.
std::string pool_launch(const Stage& stage, const PoolRun& run, bool overlap_previous,
                        cudaStream_t stream) noexcept;

}  // namespace convoy::cuda
