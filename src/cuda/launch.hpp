// Launching a kernel whose CTAs take most of a multiprocessor's shared memory.
#pragma once

#include <cuda_runtime_api.h>

namespace convoy::cuda {

/// Loads the kernel on the current device and lets its CTAs have all the shared memory there is.
/// Once, when a plan is made: a launch then neither loads code nor changes attributes, and may be
/// the first thing that a graph captures.
template <class Params>
cudaError_t make_ready(void (*kernel)(Params)) {
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  return error;
}

/// Loads a kernel of static shared memory on the current device.
template <class... Arguments>
cudaError_t load(void (*kernel)(Arguments...)) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel);
}

struct Launch {
  int grid = 0, threads = 0, shared_bytes = 0;
  cudaStream_t stream = nullptr;
  /// Start while the stream's previous kernel drains. The kernel waits for it before it reads or
  /// writes memory.
  bool overlap_previous = false;
};

template <class Params>
cudaError_t launch(void (*kernel)(Params), const Launch& how, const Params& params) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(how.grid));
  config.blockDim = dim3(static_cast<unsigned>(how.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(how.shared_bytes);
  config.stream = how.stream;
  config.attrs = &overlap;
  config.numAttrs = how.overlap_previous ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace convoy::cuda
