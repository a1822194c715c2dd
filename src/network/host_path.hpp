// What a network keeps for runs from or to the host on a GPU: page-locked memory, device memory,
// a stream for copies and events. Made when the first such run needs it, and reused.
#pragma once

#include <optional>
#include <vector>

#include "convoy/pinned.hpp"
#include "core/gpu_async.hpp"
#include "core/gpu_timing.hpp"
#include "network/chunks.hpp"

namespace convoy::network {

class HostPath {
 public:
  explicit HostPath(Device device);

  Stream copies() const { return copies_.stream(); }
  gpu::Event& copied(Index slot) { return events_[static_cast<std::size_t>(2 * slot)]; }
  gpu::Event& computed(Index slot) { return events_[static_cast<std::size_t>(2 * slot + 1)]; }

  /// Each has room for so many bytes after the call; what was in it before is lost.
  std::byte* staging(Index bytes);  // on the host
  std::byte* images(Index bytes);   // on the GPU
  std::byte* outputs(Index bytes);  // on the host

 private:
  Device device_;
  gpu::OwnedStream copies_;
  std::vector<gpu::Event> events_;  // two a slot
  std::optional<PinnedTensor> staging_, outputs_;
  std::optional<Tensor> images_;
};

}  // namespace convoy::network
