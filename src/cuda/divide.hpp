// Division by a number that the host knows: a multiplication on the device, where an integer
// division costs some thirty instructions.
#pragma once

#include <cstdint>

#include "math/host_device.hpp"

namespace convoy::cuda {

/// n / d, exact for n * d < 2^32, n >= 0, d >= 1: the magic number is less than d / 2^32 too large.
struct Divisor {
  std::uint32_t d = 1, magic = 0;
  Divisor() = default;
  explicit Divisor(int by)
      : d(static_cast<std::uint32_t>(by)),
        magic(static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + d - 1) / d)) {}
  /// Divides n in place and returns the remainder.
  CONVOY_HD int reduce(int& n) const {
    const auto value = static_cast<std::uint32_t>(n);
    // For d = 1 the magic number is 2^32, which does not fit and reads 0.
    const std::uint32_t q =
        magic == 0 ? value : static_cast<std::uint32_t>((std::uint64_t{value} * magic) >> 32);
    n = static_cast<int>(q);
    return static_cast<int>(value - q * d);
  }
};

}  // namespace convoy::cuda
