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
  void give(const std::byte* workspace) {
    const auto index = static_cast<std::size_t>(workspace - memory_.data()) / stride_;
    CONVOY_ASSUME(index < static_cast<std::size_t>(count_));
    claims_[index].give();
  }

 private:
  std::size_t stride_ = 0;
  int count_ = 0;
  Buffer<std::byte> memory_;
  std::array<Claim, most> claims_;
};

/// The workspaces of a plan on a GPU. Runs on one stream follow each other, so that a stream keeps
/// the one it got first; nothing tells when a run is over, so that none is ever given back.
class StreamWorkspaces {
 public:
  static constexpr int most = Workspaces::most;

  StreamWorkspaces() = default;
  /// count in [1, most], each of `bytes` > 0 on the device. Throws Error.
  StreamWorkspaces(std::size_t bytes, int count, Device device)
      : stride_((bytes + 255) / 256 * 256),
        count_(count),
        memory_(DType::u8, {count, static_cast<Index>(stride_)}, device),
        owner_(std::make_unique<std::array<std::atomic<std::uintptr_t>, most>>()) {}

  /// The stream's workspace, or null when other streams have all.
  std::byte* of(const void* stream) {
    const std::uintptr_t mine = reinterpret_cast<std::uintptr_t>(stream) + 1;  // 0: nobody's
    for (int i = 0; i < count_; ++i) {
      std::uintptr_t seen = 0;
      if ((*owner_)[static_cast<std::size_t>(i)].compare_exchange_strong(seen, mine) ||
          seen == mine)
        return memory_.data<std::byte>() + stride_ * static_cast<std::size_t>(i);
    }
    return nullptr;
  }

 private:
  std::size_t stride_ = 0;
  int count_ = 0;
  Tensor memory_;
  std::unique_ptr<std::array<std::atomic<std::uintptr_t>, most>> owner_;
};

}  // namespace convoy
