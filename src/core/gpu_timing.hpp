// More of the seam to the GPU code (core/gpu.hpp): streams of one's own, replays, the clock. What
// `bench`, `verify` and `tune` need.
#pragma once

#include <functional>
#include <memory>

#include "convoy/tensor.hpp"

namespace convoy::gpu {

/// A stream that runs beside all others; for the CPU, where there are none, the empty handle.
class OwnedStream {
 public:
  /// Throws Error when the device is not here.
  explicit OwnedStream(Device device);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  Stream stream() const { return stream_; }

 private:
  Device device_;
  Stream stream_;
};

/// Work on a GPU that is captured once, as a CUDA graph, and replayed on a stream of its own.
class Graph {
 public:
  using Enqueue = std::function<void(Stream)>;

  /// Empty: capture() must come before a replay. Throws Error when the device is not here.
  explicit Graph(Device device);
  /// What `enqueue` puts on the stream that it is given. Throws Error.
  Graph(Device device, const Enqueue& enqueue);
  ~Graph();
  Graph(Graph&&) noexcept;

  /// Seconds that the GPU took for what `enqueue` puts on the stream, without a graph. Throws
  /// Error.
  double run(const Enqueue& enqueue);
  /// What `enqueue` puts on the stream is what a replay does from now on. Once. Throws Error.
  void capture(const Enqueue& enqueue);
  /// Seconds that the GPU took for so many replays, one after the other. Throws Error.
  double replay(int times);
  /// The rate of a multiprocessor's clock while it works: measured for 20 microseconds right behind
  /// the last replay, in Hz. Throws Error.
  double clock_hz();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Enqueues a tiny kernel that writes one word of the GPU's memory: somebody else's work between
/// two launches, which then can't overlap. Throws Error.
void launch_foreign(Device device, void* word, Stream stream);

}  // namespace convoy::gpu
