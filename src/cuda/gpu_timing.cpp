#include "core/gpu_timing.hpp"

#include <cuda_runtime_api.h>

#include "core/gpu.hpp"
#include "cuda/clock.hpp"
#include "cuda/error.hpp"
#include "cuda/foreign.hpp"
#include "cuda/memory.hpp"

namespace convoy::gpu {
namespace {

cudaStream_t handle_of(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

}  // namespace

OwnedStream::OwnedStream(Device device) : device_(device) {
  if (device.kind != DeviceKind::cuda) return;
  static_cast<void>(machine(device.index));  // throws where there is none
  const cuda::OnDevice on(device.index);
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_.handle = stream;
}
OwnedStream::~OwnedStream() {
  if (!stream_.handle) return;
  const cuda::OnDevice on(device_.index);
  // Work is waited for: a stream that is destroyed while a launch waits for the one before it can
  // stop the device for ever (docs/trust/guarantees.md).
  static_cast<void>(cudaStreamSynchronize(handle_of(stream_)));
  static_cast<void>(cudaStreamDestroy(handle_of(stream_)));
  static_cast<void>(cudaGetLastError());
}

struct Graph::Impl {
  Device device;
  OwnedStream stream;
  cuda::DeviceMemory reading;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;

  explicit Impl(Device on)
      : device(on), stream(on), reading(on.index, sizeof(cuda::ClockReading), "the clock") {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    const cuda::OnDevice on(device.index);
    if (ready) static_cast<void>(cudaGraphExecDestroy(ready));
    if (graph) static_cast<void>(cudaGraphDestroy(graph));
    static_cast<void>(cudaGetLastError());
  }
};

Graph::Graph(Device device) : impl_(std::make_unique<Impl>(device)) {}
Graph::Graph(Device device, const Enqueue& enqueue) : Graph(device) {
  capture(enqueue);
}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;

double Graph::run(const Enqueue& enqueue) {
  const cuda::OnDevice on(impl_->device.index);
  const Stream stream = impl_->stream.stream();
  return time(impl_->device, stream, [&] { enqueue(stream); });
}

void Graph::capture(const Enqueue& enqueue) {
  const cuda::OnDevice on(impl_->device.index);
  const cudaStream_t stream = handle_of(impl_->stream.stream());
  cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
  try {
    enqueue(impl_->stream.stream());
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, &impl_->graph));
    throw;
  }
  cuda::check(cudaStreamEndCapture(stream, &impl_->graph), "ending a capture");
  cuda::check(cudaGraphInstantiate(&impl_->ready, impl_->graph, 0), "instantiating a graph");
}

double Graph::replay(int times) {
  return run([&](Stream stream) {
    for (int i = 0; i < times; ++i)
      cuda::check(cudaGraphLaunch(impl_->ready, handle_of(stream)), "replaying a graph");
  });
}

double Graph::clock_hz() {
  const cuda::OnDevice on(impl_->device.index);
  const cudaStream_t stream = handle_of(impl_->stream.stream());
  auto* reading = static_cast<cuda::ClockReading*>(impl_->reading.data());
  cuda::check(cudaGraphLaunch(impl_->ready, stream), "replaying a graph");
  cuda::check(cuda::read_clock(reading, 20'000, stream), "reading the clock");
  cuda::ClockReading read;
  cuda::check(cudaMemcpyAsync(&read, reading, sizeof read, cudaMemcpyDeviceToHost, stream),
              "reading the clock");
  cuda::check(cudaStreamSynchronize(stream), "reading the clock");
  return 1e9 * static_cast<double>(read.cycles) / static_cast<double>(read.nanoseconds);
}

void launch_foreign(Device device, void* word, Stream stream) {
  const cuda::OnDevice on(device.index);
  cuda::check(cuda::launch_foreign(static_cast<std::uint32_t*>(word), handle_of(stream)),
              "launching a kernel that writes one word");
}

}  // namespace convoy::gpu
