#include "cuda/memory.hpp"

#include <fmt/core.h>

#include "cuda/driver.hpp"
#include "cuda/error.hpp"

namespace convoy::cuda {

namespace {

/// Whether the calling thread's launches go to the device. Asked of the driver, which tells a
/// thread that CUDA has not seen yet from one on device 0.
bool is_on(int device) noexcept {
  const Driver& ask = driver();
  CUcontext context = nullptr;
  CUdevice current = -1;
  return ask.current_context && ask.device_of_context &&
         ask.current_context(&context) == CUDA_SUCCESS && context != nullptr &&
         ask.device_of_context(&current) == CUDA_SUCCESS && current == device;
}

}  // namespace

OnDevice::OnDevice(int device) noexcept {
  if (is_on(device)) return;
  int former = -1;
  error_ = cudaGetDevice(&former);
  if (error_ != cudaSuccess) return;
  error_ = cudaSetDevice(device);
  if (error_ == cudaSuccess && former != device) former_ = former;
}

OnDevice::~OnDevice() {
  if (former_ >= 0) static_cast<void>(cudaSetDevice(former_));
}

DeviceMemory::DeviceMemory(int device, std::size_t bytes, const std::string& what)
    : memory_(nullptr, Free{device}), bytes_(bytes) {
  const OnDevice on(device);
  check(on.error(), fmt::format("choosing cuda:{}", device));
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    std::size_t free = 0, total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    throw Error(
        fmt::format("no memory on cuda:{} for {}: {} bytes, and of the GPU's {} bytes {} are free. "
                    "Use a smaller n, or free what is not needed.",
                    device, what, bytes, total, free));
  }
  check(error, fmt::format("allocating {} bytes on cuda:{} for {}", bytes, device, what));
  memory_.reset(memory);
}

void DeviceMemory::Free::operator()(void* memory) const noexcept {
  const OnDevice on(device);
  static_cast<void>(cudaFree(memory));
  // A failure says that something before went wrong, or that the process ends: neither can be
  // helped here, nor shall it be blamed on the next call.
  static_cast<void>(cudaGetLastError());
}

void DeviceMemory::upload(const void* from, std::size_t bytes) const {
  const OnDevice on(memory_.get_deleter().device);
  check(on.error(), "choosing the device of an upload");
  check(cudaMemcpy(memory_.get(), from, bytes, cudaMemcpyHostToDevice),
        fmt::format("copying {} bytes to the GPU", bytes));
  // From pageable memory cudaMemcpy returns before the last bytes have arrived.
  check(cudaStreamSynchronize(nullptr), "waiting for a copy to the GPU");
}

}  // namespace convoy::cuda
