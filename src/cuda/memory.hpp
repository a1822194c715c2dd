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

/// Lets the calling thread allocate and copy while streams are being captured, by it or by others:
/// none of it is enqueued on a stream of theirs. Without it CUDA calls the capture invalid.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept;
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the former one
  bool exchanged_ = false;
};

/// A stream of its own, of the current device, that neither waits for the legacy stream nor is
/// waited for by it: work on that one would spoil captures of others. Throws Error.
class SideStream {
 public:
  SideStream();
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  RelaxedCapture relaxed_;
  cudaStream_t stream_ = nullptr;
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

  /// Each is complete on return, and beside whatever streams do. Throws Error.
  void upload(const void* from, std::size_t bytes) const;  // from the host
  void clear() const;

 private:
  struct Free {
    int device = 0;
    void operator()(void* memory) const noexcept;
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace convoy::cuda
