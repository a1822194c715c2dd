// The seam to the GPU code: what the core and the planner ask of it.
#include "core/gpu.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"

namespace convoy::gpu {
namespace {

cudaStream_t stream_of(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

struct Event {
  cudaEvent_t event = nullptr;
  Event() { cuda::check(cudaEventCreate(&event), "making an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { static_cast<void>(cudaEventDestroy(event)); }
};

}  // namespace

Survey survey() {
  const cuda::Discovery found = cuda::discover();
  Survey all;
  all.compiled = fmt::format("{}; CUDA {}.{}", cuda::architectures_text(CONVOY_GPU_COMPILED),
                             CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  all.driver = cuda::driver_version();
  for (const cuda::DeviceFacts& facts : found.devices)
    all.machines.push_back(cuda::machine_of(facts, cuda::driver_version()));
  all.why_none = found.why_none;
  return all;
}

Machine machine(int index) {
  const cuda::DeviceFacts facts = cuda::facts_of(index);
  if (10 * facts.major + facts.minor < 75)
    throw NoDevice(
        fmt::format("device cuda:{}: {} has compute capability {}.{}, Convoy needs 7.5. Use cpu.",
                    index, facts.name, facts.major, facts.minor));
  return cuda::machine_of(facts, cuda::driver_version());
}

void* allocate(Device device, std::size_t bytes, const std::string& what) {
  static_cast<void>(machine(device.index));  // throws where there is none
  cuda::DeviceMemory memory(device.index, bytes, what);
  memory.clear();
  return memory.release();
}

void release(Device device, void* memory) noexcept {
  const cuda::OnDevice on(device.index);
  const cuda::RelaxedCapture relaxed;
  static_cast<void>(cudaFree(memory));
  static_cast<void>(cudaGetLastError());
}

void copy(const CopyRows& rows, Stream stream) {
  const bool from_gpu = rows.from_device.kind == DeviceKind::cuda;
  const bool to_gpu = rows.to_device.kind == DeviceKind::cuda;
  const int device = (to_gpu ? rows.to_device : rows.from_device).index;
  if (from_gpu) static_cast<void>(machine(rows.from_device.index));  // throws where there is none
  if (to_gpu) static_cast<void>(machine(rows.to_device.index));
  const cuda::OnDevice on(device);
  const cuda::RelaxedCapture relaxed;
  const std::string doing =
      fmt::format("copying from {} to {}", to_text(rows.from_device), to_text(rows.to_device));
  cuda::check(on.error(), doing);
  cuda::check(rows.rows == 1 ? cudaMemcpyAsync(rows.to, rows.from, rows.row_bytes,
                                               cudaMemcpyDefault, stream_of(stream))
                             : cudaMemcpy2DAsync(rows.to, rows.to_pitch, rows.from, rows.from_pitch,
                                                 rows.row_bytes, rows.rows, cudaMemcpyDefault,
                                                 stream_of(stream)),
              doing);
  if (!from_gpu || !to_gpu) cuda::check(cudaStreamSynchronize(stream_of(stream)), doing);
}

void synchronize(Device device, Stream stream) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  const cuda::RelaxedCapture relaxed;
  cuda::check(cudaStreamSynchronize(stream_of(stream)),
              "waiting for a stream of " + to_text(device));
}

double time(Device device, Stream stream, const std::function<void()>& enqueue) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  const cuda::RelaxedCapture relaxed;
  const Event before, after;
  cuda::check(cudaEventRecord(before.event, stream_of(stream)), "recording an event");
  enqueue();
  cuda::check(cudaEventRecord(after.event, stream_of(stream)), "recording an event");
  cuda::check(cudaEventSynchronize(after.event), "waiting for the timed work");
  float milliseconds = 0;
  cuda::check(cudaEventElapsedTime(&milliseconds, before.event, after.event), "reading events");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace convoy::gpu
