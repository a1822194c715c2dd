#include "core/gpu_async.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "core/gpu.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"

namespace convoy::gpu {
namespace {

cudaStream_t stream_of(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}
cudaEvent_t event_of(void* handle) {
  return static_cast<cudaEvent_t>(handle);
}

}  // namespace

void* allocate_pinned(Device device, std::size_t bytes, const std::string& what) {
  static_cast<void>(machine(device.index));  // throws where there is none
  const cuda::OnDevice on(device.index);
  const cuda::RelaxedCapture relaxed;
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, bytes > 0 ? bytes : 1, cudaHostAllocPortable | cudaHostAllocMapped);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw NoMemory(fmt::format(
        "no page-locked memory on the host for {}: it takes {} bytes, which must be free and "
        "within the limit of locked memory. Use a smaller n, or ordinary memory.",
        what, bytes));
  }
  cuda::check(error, fmt::format("allocating {} page-locked bytes for {}", bytes, what));
  std::memset(memory, 0, bytes);
  return memory;
}

void release_pinned(void* memory) noexcept {
  const cuda::RelaxedCapture relaxed;
  static_cast<void>(cudaFreeHost(memory));
  static_cast<void>(cudaGetLastError());
}

bool is_pinned(Device device, const void* memory) {
  const cuda::OnDevice on(device.index);
  cudaPointerAttributes found{};
  cuda::check(cudaPointerGetAttributes(&found, memory),
              "asking for the kind of memory of the images");
  return found.type == cudaMemoryTypeHost;
}

Device device_of(const void* memory) {
  cudaPointerAttributes found{};
  cuda::check(cudaPointerGetAttributes(&found, memory), "asking which GPU memory is on");
  if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged)
    throw InvalidOperand(
        fmt::format("its address {} is in memory that is on no GPU, expected memory that CUDA "
                    "allocated there. Copy it to the GPU first.",
                    memory));
  return {DeviceKind::cuda, found.device};
}

bool is_captured(Device device, Stream stream) {
  if (!stream.handle) return false;  // the legacy stream can't be
  const cuda::OnDevice on(device.index);
  cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamIsCapturing(stream_of(stream), &found), "asking for the state of a stream");
  return found != cudaStreamCaptureStatusNone;
}

StreamFacts facts_of(Device device, Stream stream) {
  // Captured it can't be, and a question about it would spoil the capture of another stream.
  if (stream.handle == nullptr || stream_of(stream) == cudaStreamLegacy) return {};
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  unsigned long long number = 0, capture = 0;
  cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamGetCaptureInfo(stream_of(stream), &found, &capture),
              "asking for the state of a stream");
  // CUDA does not tell the number of a stream that is captured. Its handle can't come again before
  // the capture is over.
  if (found != cudaStreamCaptureStatusNone)
    return {reinterpret_cast<std::uintptr_t>(stream.handle), capture + 1};
  const cuda::RelaxedCapture relaxed;  // another stream's capture forbids the question
  cuda::check(cudaStreamGetId(stream_of(stream), &number), "asking which stream a handle is");
  // One more, so that no stream of a number 0 is taken for the default one.
  return {number + 1, 0};
}

bool wait_for_all(Device device) noexcept {
  const cuda::OnDevice on(device.index);
  const cuda::RelaxedCapture relaxed;
  const bool done = on.error() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
  if (!done) static_cast<void>(cudaGetLastError());
  return done;
}

bool is_done(Device device, Stream stream) {
  const cuda::OnDevice on(device.index);
  const cuda::RelaxedCapture relaxed;
  const cudaError_t error = cudaStreamQuery(stream_of(stream));
  if (error == cudaErrorNotReady) return false;
  cuda::check(error, "a stream of " + to_text(device));
  return true;
}

void copy_async(Device device, void* to, const void* from, std::size_t bytes, Stream stream) {
  const cuda::OnDevice on(device.index);
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)),
              "copying between the host and a GPU");
}

Event::Event(Device device) : device_(device) {
  static_cast<void>(machine(device.index));  // throws where there is none
  const cuda::OnDevice on(device.index);
  cudaEvent_t event = nullptr;
  cuda::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  handle_ = event;
}
Event::~Event() {
  if (!handle_) return;
  const cuda::OnDevice on(device_.index);
  static_cast<void>(cudaEventDestroy(event_of(handle_)));
  static_cast<void>(cudaGetLastError());
}
Event::Event(Event&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

void Event::record(Stream stream) {
  const cuda::OnDevice on(device_.index);
  cuda::check(cudaEventRecord(event_of(handle_), stream_of(stream)), "recording an event");
}
void Event::hold_back(Stream stream) const {
  const cuda::OnDevice on(device_.index);
  cuda::check(cudaStreamWaitEvent(stream_of(stream), event_of(handle_), 0),
              "holding back a stream");
}
bool Event::reached() const {
  const cuda::OnDevice on(device_.index);
  const cuda::RelaxedCapture relaxed;
  const cudaError_t error = cudaEventQuery(event_of(handle_));
  if (error == cudaErrorNotReady) return false;
  cuda::check(error, "a stream of " + to_text(device_));
  return true;
}
void Event::wait() const {
  const cuda::OnDevice on(device_.index);
  const cuda::RelaxedCapture relaxed;
  cuda::check(cudaEventSynchronize(event_of(handle_)),
              "waiting for a stream of " + to_text(device_));
}

}  // namespace convoy::gpu
