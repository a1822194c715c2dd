// How f32 sums lie in a warpgroup's staging buffer, from which TMA stores them. Host and device.
#pragma once

#include "cuda/sm90/staged.hpp"

namespace convoy::cuda::sm90 {

/// Where the sum of one of a warpgroup's 64 channels lies: a pixel has two rows of 32, in two boxes
/// of so many `pixels`, one behind the other.
CONVOY_HD std::uint32_t staged_sum_at(std::uint32_t staging, int pixels, int channel, int pixel) {
  return staged_at<64>(staging + static_cast<std::uint32_t>(channel / 32 * pixels * 128), pixel,
                       channel % 32 / 4) +
         static_cast<std::uint32_t>(channel % 4 * 4);
}

}  // namespace convoy::cuda::sm90
