// The workspaces that a plan owns, handed out to runs without a lock.
#pragma once

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "convoy/tensor.hpp"
#include "core/assume.hpp"
#include "core/buffer.hpp"
#include "core/process.hpp"
#include "core/size.hpp"

namespace convoy {

class Workspaces {
 public:
  static constexpr int most = 64;

  Workspaces() = default;
  /// count in [1, most], each of `bytes` (rounded up so that all are 64-byte aligned). Throws Error
  /// where there is no memory.
  Workspaces(std::size_t bytes, int count) : stride_((bytes + 63) / 64 * 64), count_(count) {
    CONVOY_ASSUME(count >= 1 && count <= most);
    const Size all = Size(static_cast<Index>(bytes)) * count;
    try {
      if (!all.fits()) throw std::bad_alloc();
      memory_ = Buffer<std::byte>(stride_ * static_cast<std::size_t>(count));
    } catch (const std::bad_alloc&) {
      throw Error(
          fmt::format("workspace: no memory for {} of {} bytes. Use a smaller n, or fewer "
                      "PlanOptions::concurrent_runs.",
                      count, bytes));
    }
  }

  /// A workspace that nobody else holds, or null when all are taken.
  std::byte* take() {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count_); ++i)
      if (claims_[i].take()) return memory_.data() + stride_ * i;
    return nullptr;
  }
  /// A workspace that nobody else holds, as soon as there is one. Who holds one never waits for
  /// another, so that it comes.
  std::byte* wait() {
    for (;;) {
      const int seen = given_.load(std::memory_order_acquire);
      if (std::byte* const workspace = take()) return workspace;
      given_.wait(seen, std::memory_order_acquire);
    }
  }
  void give(const std::byte* workspace) {
    const auto index = static_cast<std::size_t>(workspace - memory_.data()) / stride_;
    CONVOY_ASSUME(index < static_cast<std::size_t>(count_));
    claims_[index].give();
    given_.fetch_add(1, std::memory_order_release);
    given_.notify_one();
  }

 private:
  std::size_t stride_ = 0;
  int count_ = 0;
  Buffer<std::byte> memory_;
  std::array<Claim, most> claims_;
  std::atomic<int> given_{0};  // how often, modulo 2^32
};

/// Whether the handle is cudaStreamPerThread: one handle for a stream of each thread.
inline bool is_of_many_streams(const void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) == 2;  // fixed by CUDA's headers
}

/// Which of `count` workspaces each stream has. Runs on one stream follow each other, so that a
/// stream keeps the one it got first; nothing tells when a run is over, so that none is given back.
class StreamOwners {
 public:
  static constexpr int most = Workspaces::most;

  /// The stream's number below count, at most `most`, or -1 where other streams have all. Not of a
  /// handle that is_of_many_streams.
  int of(const void* stream, int count) {
    auto handle = reinterpret_cast<std::uintptr_t>(stream);
    if (handle == 1) handle = 0;             // cudaStreamLegacy is the default stream
    const std::uintptr_t mine = handle + 1;  // 0: nobody's
    for (int i = 0; i < count; ++i) {
      std::uintptr_t seen = 0;
      if (owners_[static_cast<std::size_t>(i)].compare_exchange_strong(seen, mine) || seen == mine)
        return i;
    }
    return -1;
  }

 private:
  std::array<std::atomic<std::uintptr_t>, most> owners_{};
};

/// The workspaces of a plan on a GPU, by stream.
class StreamWorkspaces {
 public:
  StreamWorkspaces() = default;
  /// count in [1, StreamOwners::most], each of `bytes` > 0 on the device. Throws Error.
  StreamWorkspaces(std::size_t bytes, int count, Device device)
      : stride_((bytes + 255) / 256 * 256),
        count_(count),
        memory_(DType::u8, {count, static_cast<Index>(stride_)}, device),
        owners_(std::make_unique<StreamOwners>()) {}

  /// The stream's workspace, or null when other streams have all.
  std::byte* of(const void* stream) {
    const int mine = owners_->of(stream, count_);
    return mine < 0 ? nullptr
                    : memory_.data<std::byte>() + stride_ * static_cast<std::size_t>(mine);
  }

 private:
  std::size_t stride_ = 0;
  int count_ = 0;
  Tensor memory_;
  std::unique_ptr<StreamOwners> owners_;
};

}  // namespace convoy
