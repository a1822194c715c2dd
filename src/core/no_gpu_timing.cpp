// Replays and the clock in a build without GPU code.
#include "core/gpu.hpp"
#include "core/gpu_timing.hpp"

namespace convoy::gpu {

struct Graph::Impl {};

OwnedStream::OwnedStream(Device device) : device_(device) {
  if (device.kind == DeviceKind::cuda) static_cast<void>(machine(device.index));  // throws
}
// Not defaulted: with CUDA it releases the stream.
OwnedStream::~OwnedStream() {}

Graph::Graph(Device device) {
  static_cast<void>(machine(device.index));  // throws
}
Graph::Graph(Device device, const Enqueue&) : Graph(device) {}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
double Graph::run(const Enqueue&) {
  return 0;
}
void Graph::capture(const Enqueue&) {}
double Graph::replay(int) {
  return 0;
}
double Graph::clock_hz() {
  return 0;
}

void launch_foreign(Device, void*, Stream) {}

}  // namespace convoy::gpu
