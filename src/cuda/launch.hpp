// Launching kernels: loaded when a plan is made, launched with as little as the host can do.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <type_traits>

#include "cuda/driver.hpp"
#include "cuda/error.hpp"

namespace convoy::cuda {

/// Loads a kernel of static shared memory on the current device.
template <class... Arguments>
cudaError_t load(void (*kernel)(Arguments...)) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel);
}

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

struct Launch {
  int grid = 0, threads = 0, shared_bytes = 0;
  cudaStream_t stream = nullptr;
  /// Start while the stream's previous kernel drains. The kernel waits for it before it reads or
  /// writes memory.
  bool overlap_previous = false;
};

/// A launch of what no plan holds as a LoadedKernel: passes over memory, which one of several
/// kernels makes by how its operands lie, and helpers. The runtime looks the kernel up.
template <class... Params>
cudaError_t launch(void (*kernel)(Params...), const Launch& how,
                   const std::type_identity_t<Params>&... params) {
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
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, params...);
  // Taken off CUDA's per-thread record: the caller's next check is not to be blamed for it.
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
}

/// A kernel of one struct of parameters, on the device that was current when it was loaded. Its
/// CTAs may have all the shared memory there is. A launch neither loads code nor changes
/// attributes, and may be the first thing that a graph captures.
template <class Params>
class LoadedKernel {
 public:
  /// Throws Error, with the kernel's `name`.
  LoadedKernel(void (*kernel)(Params), const std::string& name) {
    if (kernel == nullptr) throw Error(name + " is not compiled");
    cudaError_t error = make_ready(kernel);
    if (error == cudaSuccess)
      error = cudaGetFuncBySymbol(&function_, reinterpret_cast<const void*>(kernel));
    if (error == cudaSuccess && driver().launch == nullptr) error = cudaErrorInsufficientDriver;
    check(error, "loading " + name);
  }

  /// Through the driver: the runtime would look the kernel up in every launch, a fifth of a
  /// microsecond.
  cudaError_t launch(const Launch& how, const Params& params) const noexcept {
    CUlaunchAttribute overlap{};
    overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    overlap.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = static_cast<unsigned>(how.grid);
    config.blockDimX = static_cast<unsigned>(how.threads);
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = static_cast<unsigned>(how.shared_bytes);
    config.hStream = how.stream;
    config.attrs = &overlap;
    config.numAttrs = how.overlap_previous ? 1 : 0;
    void* arguments[] = {const_cast<Params*>(&params)};
    // The runtime's errors have the driver's numbers.
    return static_cast<cudaError_t>(driver().launch(&config, function_, arguments, nullptr));
  }

 private:
  cudaFunction_t function_ = nullptr;
};

}  // namespace convoy::cuda
