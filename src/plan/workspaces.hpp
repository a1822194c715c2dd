// The workspaces that a plan owns, handed out to runs without a lock.
#pragma once

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "convoy/tensor.hpp"
#include "core/assume.hpp"
#include "core/buffer.hpp"
#include "core/failure.hpp"
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
      throw NoMemory(
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

}  // namespace convoy
