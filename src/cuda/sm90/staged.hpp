// How a warpgroup's results lie in its staging buffer, from which TMA stores them. Host and device.
#pragma once

#include <cstdint>

#include "math/host_device.hpp"

namespace convoy::cuda::sm90 {

/// What a lane gives stmatrix: the address of `column` of a fragment, 16-byte unit `unit` of
/// the row of that pixel. Lane 8m + c addresses column c of block m: m&1 says which 8 of the warp's
/// 16 channels, m>>1 which of two fragments.
struct StagedLane {
  int column, unit;
  CONVOY_HD StagedLane(int lane, int warp) : column(lane & 7), unit(2 * warp + (lane >> 3 & 1)) {}
};
/// Where such a unit lies in the buffer that begins at `staging`: rows of 64 or 32 channels,
/// swizzled as TMA reads them.
template <int Channels>
CONVOY_HD std::uint32_t staged_at(std::uint32_t staging, int pixel, int unit) {
  if constexpr (Channels == 64)
    return staging + static_cast<std::uint32_t>(pixel * 128) +
           static_cast<std::uint32_t>((unit ^ (pixel & 7)) << 4);
  else
    return staging + static_cast<std::uint32_t>(pixel * 64) +
           static_cast<std::uint32_t>((unit ^ (pixel >> 1 & 3)) << 4);
}

}  // namespace convoy::cuda::sm90
