#include "cuda/driver.hpp"

#include <cuda_runtime_api.h>

namespace convoy::cuda {
namespace {

template <class Function>
void find(const char* name, Function& function) noexcept {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &result);
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess)
    function = reinterpret_cast<Function>(entry);
}

}  // namespace

const Driver& driver() noexcept {
  static const Driver found = [] {
    Driver all;
    find("cuTensorMapEncodeTiled", all.encode_tensor_map);
    find("cuTensorMapReplaceAddress", all.replace_address);
    find("cuLaunchKernelEx", all.launch);
    find("cuCtxGetCurrent", all.current_context);
    find("cuCtxGetDevice", all.device_of_context);
    return all;
  }();
  return found;
}

}  // namespace convoy::cuda
