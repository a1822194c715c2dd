// The workspaces of a plan on a GPU: one for each stream that uses it.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "convoy/tensor.hpp"
#include "core/gpu_async.hpp"

namespace convoy {

/// Hands out workspaces by stream and capture. Runs on one stream follow each other, so that they
/// share one; nothing tells when a stream's work is over, so that a stream keeps it.
///
/// - Streams are told apart by numbers that CUDA never uses again. A handle may come again while
///   work of the stream that had it before is still going on.
/// - A capture gets workspaces of its own, one for each of its streams, kept as long as the plan:
///   its graph may be launched at any time.
/// - Programs that make a stream for each request would take ever more. So from `most` streams on
///   all work of the device is waited for, and the workspaces of streams begin again.
class StreamWorkspaces {
 public:
  static constexpr std::size_t most = 64;

  /// make: a workspace on the device; throws Error when there is no memory. wait_for_all: for all
  /// work of the device; false if it can't.
  StreamWorkspaces(std::size_t at_first, std::function<Tensor()> make,
                   std::function<bool()> wait_for_all)
      : make_(std::move(make)), wait_for_all_(std::move(wait_for_all)) {
    for (std::size_t i = 0; i < at_first; ++i) all_.push_back({{}, false, make_()});
  }

  /// Calls enqueue(workspace) and returns what it does. Others wait meanwhile: a workspace may
  /// change hands only when all that was to be enqueued with it has been.
  template <class Enqueue>
  auto run(const gpu::StreamFacts& who, const Enqueue& enqueue) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return enqueue(of(who).data<std::byte>());
  }

  /// How many there are.
  std::size_t count() const { return all_.size(); }

 private:
  struct Owned {
    gpu::StreamFacts by;
    bool taken = false;
    Tensor memory;
  };

  Tensor& of(const gpu::StreamFacts& who) {
    for (Owned& one : all_)
      if (one.taken && one.by == who) return one.memory;
    if (who.capture == 0 && streams() >= most && wait_for_all_())
      for (Owned& one : all_)
        if (one.by.capture == 0) one.taken = false;
    for (Owned& one : all_)
      if (!one.taken) return take(one, who);
    all_.push_back({{}, false, make_()});
    return take(all_.back(), who);
  }
  std::size_t streams() const {
    std::size_t count = 0;
    for (const Owned& one : all_) count += one.taken && one.by.capture == 0;
    return count;
  }
  static Tensor& take(Owned& one, const gpu::StreamFacts& who) {
    one.by = who;
    one.taken = true;
    return one.memory;
  }

  std::function<Tensor()> make_;
  std::function<bool()> wait_for_all_;
  std::mutex mutex_;
  std::vector<Owned> all_;
};

}  // namespace convoy
