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

RelaxedCapture::RelaxedCapture() noexcept
    : exchanged_(cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) {
  if (!exchanged_) static_cast<void>(cudaGetLastError());
}
RelaxedCapture::~RelaxedCapture() {
  if (exchanged_) static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
}

SideStream::SideStream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}
SideStream::~SideStream() {
  static_cast<void>(cudaStreamDestroy(stream_));
}

DeviceMemory::DeviceMemory(int device, std::size_t bytes, const std::string& what)
    : memory_(nullptr, Free{device}), bytes_(bytes) {
  const OnDevice on(device);
  check(on.error(), fmt::format("choosing cuda:{}", device));
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    std::size_t free = 0, total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    throw NoMemory(
        fmt::format("no memory on cuda:{0} for {1}: it takes {2} bytes, but {4} of the GPU's {3} "
                    "bytes are free. Use a smaller n, or free memory that is not needed.",
                    device, what, bytes, total, free));
  }
  check(error, fmt::format("allocating {} bytes on cuda:{} for {}", bytes, device, what));
  memory_.reset(memory);
}

void DeviceMemory::Free::operator()(void* memory) const noexcept {
  const OnDevice on(device);
  const RelaxedCapture relaxed;
  static_cast<void>(cudaFree(memory));
  // A failure says that something before went wrong, or that the process ends: neither can be
  // helped here, nor shall it be blamed on the next call.
  static_cast<void>(cudaGetLastError());
}

void DeviceMemory::upload(const void* from, std::size_t bytes) const {
  const OnDevice on(memory_.get_deleter().device);
  check(on.error(), "choosing the device of an upload");
  const SideStream stream;
  check(cudaMemcpyAsync(memory_.get(), from, bytes, cudaMemcpyHostToDevice, stream.get()),
        fmt::format("copying {} bytes to the GPU", bytes));
  check(cudaStreamSynchronize(stream.get()), "waiting for a copy to the GPU");
}

void DeviceMemory::clear() const {
  const OnDevice on(memory_.get_deleter().device);
  check(on.error(), "choosing the device of memory to clear");
  const SideStream stream;
  check(cudaMemsetAsync(memory_.get(), 0, bytes_, stream.get()),
        fmt::format("clearing {} bytes of the GPU", bytes_));
  check(cudaStreamSynchronize(stream.get()), "waiting for memory to be cleared");
}

}  // namespace convoy::cuda
