// A place in a ring of slots that producers fill and consumers empty.
#pragma once

#include <cstdint>

namespace convoy::cuda::sm90 {

/// The slot, and the parity of the round.
struct Ring {
  int slot = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance(int slots) {
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace convoy::cuda::sm90
