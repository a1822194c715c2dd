// CUDA's errors, with what we were doing when they came.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/failure.hpp"

namespace convoy::cuda {

/// "cudaMalloc of x: out of memory (cudaErrorMemoryAllocation)"; empty for cudaSuccess.
inline std::string describe(cudaError_t error, const std::string& doing) {
  if (error == cudaSuccess) return {};
  return doing + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
}

/// Throws NoMemory or DeviceError with the description. `doing` names the stage and the kernel if
/// there are any.
/// The error is taken off CUDA's per-thread record, so that a later call is not blamed for it.
inline void check(cudaError_t error, const std::string& doing) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorMemoryAllocation) throw NoMemory(describe(error, doing));
  throw DeviceError(describe(error, doing));
}

/// What a launch says of its error, as a status; empty: it had none.
inline Status launch_status(const std::string& error) {
  return error.empty() ? Status() : Status(StatusCode::device_error, error);
}

/// The same of an error in choosing the plan's device (OnDevice): launches would go to another one.
inline Status device_status(cudaError_t error) {
  if (error == cudaSuccess) return {};  // the text below allocates
  static_cast<void>(cudaGetLastError());
  return launch_status(describe(error, "choosing the plan's GPU for a run"));
}

}  // namespace convoy::cuda
