// Device memory with an owner, and the device that a call works on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

namespace convoy::cuda {

/// Makes a device the calling thread's current one, and the former one again at the end: whoever
/// calls us finds CUDA as they left it.
class OnDevice {
 public:
  explicit OnDevice(int device) noexcept;
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int former_ = -1;  // the device to go back to; -1: no need
  cudaError_t error_ = cudaSuccess;
};

/// Owns bytes of a device's memory, 256-byte aligned.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Not initialised. `what` names it in the Error thrown when there is not enough memory.
  DeviceMemory(int device, std::size_t bytes, const std::string& what);
  void* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  void* release() { return memory_.release(); }

  /// Copies from the host; complete on return. Throws Error.
  void upload(const void* from, std::size_t bytes) const;

 private:
  struct Free {
    int device = 0;
    void operator()(void* memory) const noexcept;
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace convoy::cuda
