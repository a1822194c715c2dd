#include "cuda/device.hpp"

#include <cuda_runtime_api.h>

#include "cuda/error.hpp"

namespace convoy::cuda {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device),
        "reading an attribute of cuda:" + std::to_string(device));
  return value;
}

DeviceFacts read(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "reading cuda:" + std::to_string(index));
  DeviceFacts facts;
  facts.index = index;
  facts.name = properties.name;
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.sms = properties.multiProcessorCount;
  facts.shared_bytes =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
  facts.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  facts.memory_bytes = properties.totalGlobalMem;
  return facts;
}

}  // namespace

Discovery discover() {
  Discovery found;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    int driver = 0;
    static_cast<void>(cudaDriverGetVersion(&driver));
    if (driver == 0)
      found.why_none = "no NVIDIA driver is installed (or this container can't see it)";
    else
      found.why_none = describe(error, "asking CUDA for devices");
    return found;
  }
  for (int i = 0; i < count; ++i) found.devices.push_back(read(i));
  if (count == 0) found.why_none = "the driver sees no GPU";
  return found;
}

DeviceFacts facts_of(int index) {
  const Discovery found = discover();
  if (index >= 0 && index < static_cast<int>(found.devices.size()))
    return found.devices[static_cast<std::size_t>(index)];
  throw Error("cuda:" + std::to_string(index) + " is not here: " +
              (found.devices.empty() ? found.why_none
                                     : "there are " + std::to_string(found.devices.size()) +
                                           " GPUs, numbered from 0"));
}

}  // namespace convoy::cuda
