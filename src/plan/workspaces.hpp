// The workspaces that a plan owns, handed out to runs without a lock.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

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

}  // namespace convoy
