#include "cuda/refusals.hpp"

#include <fmt/core.h>

namespace convoy::cuda {

Refusals& Refusals::hopper(const DeviceFacts& device) {
  return no(device.major != 9, fmt::format("compute capability {}.{}, the family needs 9.0 (wgmma)",
                                           device.major, device.minor));
}

Refusals& Refusals::channels_in_eights() {
  return no(stage_.c % 8 != 0,
            fmt::format("C = {} is no multiple of 8 (TMA moves 16 bytes)", stage_.c));
}

Refusals& Refusals::filters_in_eights() {
  return no(stage_.k % 8 != 0,
            fmt::format("K = {} is no multiple of 8 (TMA moves 16 bytes)", stage_.k));
}

Refusals& Refusals::within(const Limits& limits) {
  for (std::string& reason : beyond(stage_, limits)) why_.push_back(std::move(reason));
  return *this;
}

}  // namespace convoy::cuda
