// Rings of slots in shared memory that producers fill and consumers empty, and their barriers.
#pragma once

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/warpgroup.cuh"

namespace convoy::cuda::sm90 {

constexpr int mbarrier_bytes = 8;

/// A ring's barriers: that a slot is full, of all slots; then that it is empty.
struct RingBarriers {
  std::uint32_t base;
  int slots;
  __device__ __forceinline__ std::uint32_t full(int slot) const {
    return base + mbarrier_bytes * slot;
  }
  __device__ __forceinline__ std::uint32_t empty(int slot) const {
    return base + mbarrier_bytes * (slots + slot);
  }
  __device__ __forceinline__ std::uint32_t end() const { return base + mbarrier_bytes * 2 * slots; }
  /// A slot is full after `fills` arrivals and empty after `empties`.
  __device__ __forceinline__ void init(int slot, int fills, int empties) const {
    ptx::mbarrier_init(full(slot), fills);
    ptx::mbarrier_init(empty(slot), empties);
  }
};

/// A place in a ring: the slot, and the parity of the round.
struct Ring {
  int slot = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance(int slots) {
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
  /// By several slots: what walks in turn with others leaves out theirs.
  __device__ __forceinline__ void advance(int slots, int by) {
    slot += by;
    if (slot >= slots) {
      slot -= slots;
      parity ^= 1;
    }
  }
};

/// The same as a consumer needs it between two wgmmas, on one warp a scheduler, where every
/// instruction shows: the slot's full barrier (its empty one lies `end - begin` on) and the low
/// half of its descriptor. All additions.
struct OperandRing {
  std::uint32_t begin, end;       // barriers
  std::uint32_t first_low, step;  // descriptor of slot 0, between slots
  std::uint32_t full, low, parity, flip;

  /// `turns`: false for slots that are filled once: their first round stays complete.
  __device__ __forceinline__ OperandRing(const RingBarriers& barriers, std::uint32_t address,
                                         int slot_bytes, bool turns)
      : begin(barriers.full(0)),
        end(barriers.empty(0)),
        first_low(ptx::swizzled_low(address)),
        step(slot_bytes >> 4),
        full(begin),
        low(first_low),
        parity(0),
        flip(turns ? 1 : 0) {}
  __device__ __forceinline__ void advance() {
    full += mbarrier_bytes;
    low += step;
    if (full == end) {
      full = begin;
      low = first_low;
      parity ^= flip;
    }
  }
  /// Leaves out the slots of the other warpgroup's tile: `count` beyond whole rounds, of which
  /// `odd`.
  __device__ __forceinline__ void skip(int count, int odd) {
    full += mbarrier_bytes * count;
    low += count * step;
    if (full >= end) {
      full -= end - begin;
      low -= ((end - begin) / mbarrier_bytes) * step;
      parity ^= 1;
    }
    parity ^= odd;
  }
  __device__ __forceinline__ std::uint32_t empty(std::uint32_t full_barrier) const {
    return full_barrier + (end - begin);
  }
};

}  // namespace convoy::cuda::sm90
