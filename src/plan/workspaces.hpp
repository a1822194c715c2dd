// The workspaces that a plan owns, handed out to runs without a lock.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "convoy/tensor.hpp"
#include "core/buffer.hpp"

namespace convoy {

class Workspaces {
 public:
  static constexpr int most = 64;  // bits of the mask

  Workspaces() = default;
  /// count in [1, most], each of `bytes` (rounded up so that all are 64-byte aligned).
  Workspaces(std::size_t bytes, int count)
      : stride_((bytes + 63) / 64 * 64),
        memory_(stride_ * static_cast<std::size_t>(count)),
        free_(count == most ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) {}

  /// A workspace that nobody else holds, or null when all are taken.
  std::byte* take() {
    std::uint64_t seen = free_.load(std::memory_order_relaxed);
    while (seen != 0) {
      // Clear the lowest set bit; on failure `seen` is what another run left.
      if (free_.compare_exchange_weak(seen, seen & (seen - 1), std::memory_order_acquire))
        return memory_.data() + stride_ * static_cast<std::size_t>(std::countr_zero(seen));
    }
    return nullptr;
  }
  void give(const std::byte* workspace) {
    const auto index = static_cast<std::size_t>(workspace - memory_.data()) / stride_;
    free_.fetch_or(std::uint64_t{1} << index, std::memory_order_release);
  }

 private:
  std::size_t stride_ = 0;
  Buffer<std::byte> memory_;
  std::atomic<std::uint64_t> free_{0};
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
        memory_(DType::u8, {static_cast<Index>(stride_) * count}, device),
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
