// How tiles lie in the shared memory of a Hopper CTA, as TMA writes them and wgmma reads them.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "math/divide.hpp"
#include "math/host_device.hpp"

namespace convoy::cuda::sm90 {

/// What this folder's families multiply: f16 and bf16, which have these facts in common.
inline constexpr TypeFacts multiplied = facts_of(DType::f16);
static_assert(facts_of(DType::bf16).bytes == multiplied.bytes &&
                  facts_of(DType::bf16).step_channels == multiplied.step_channels,
              "one layout serves both types");
inline constexpr int value_bytes = static_cast<int>(multiplied.bytes);
/// Channels of an instruction's step, and steps of a row.
inline constexpr int step_channels = multiplied.step_channels;
/// One row of a box in 128-byte swizzle, in bytes, channels and steps.
inline constexpr int row_bytes = 128, row_channels = row_bytes / value_bytes;
inline constexpr int row_steps = row_channels / step_channels;
/// A step in the 16 bytes in which descriptors count.
inline constexpr int step_units = row_bytes / row_steps / 16;
/// Output channels of an instruction: its M.
inline constexpr int block_channels = 64;
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
