// How tiles lie in the shared memory of a Hopper CTA, as TMA writes them and wgmma reads them.
#pragma once

#include <cstdint>

#include "math/divide.hpp"
#include "math/host_device.hpp"

namespace convoy::cuda::sm90 {

/// One row of a box in 128-byte swizzle: 64 channels of 16 bits.
inline constexpr int row_channels = 64, row_bytes = 128;
/// The swizzle's period: eight rows. Slots and staging buffers begin at its multiples.
inline constexpr int swizzle_bytes = 8 * row_bytes;
/// The address from which slots and staging buffers begin.
CONVOY_HD std::uint32_t aligned(std::uint32_t address) {
  return (address + swizzle_bytes - 1) & ~static_cast<std::uint32_t>(swizzle_bytes - 1);
}
/// Elements of an axis that a TMA box may have.
inline constexpr int most_box = 256;

constexpr int round_up(int a, int b) {
  return (a + b - 1) / b * b;
}
constexpr int ceil_div(Index a, Index b) {
  return static_cast<int>(math::ceil_div(a, b));
}

}  // namespace convoy::cuda::sm90
