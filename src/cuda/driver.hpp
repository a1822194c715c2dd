// Functions of the driver, asked for at run time: nothing links to libcuda.
#pragma once

#include <cuda.h>

namespace convoy::cuda {

/// Each is null where there is no driver, or one before CUDA 12.
struct Driver {
  decltype(&cuTensorMapEncodeTiled) encode_tensor_map = nullptr;
  decltype(&cuTensorMapReplaceAddress) replace_address = nullptr;
  decltype(&cuLaunchKernelEx) launch = nullptr;
  decltype(&cuCtxGetCurrent) current_context = nullptr;
  decltype(&cuCtxGetDevice) device_of_context = nullptr;
};
const Driver& driver() noexcept;

}  // namespace convoy::cuda
