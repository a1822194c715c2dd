// What an H200 says of itself, for whatever needs no GPU: tests, and fits to what was measured on
// one.
#pragma once

#include "cuda/device.hpp"

namespace convoy::cuda {

inline DeviceFacts h200() {
  DeviceFacts facts;
  facts.name = "NVIDIA H200";
  facts.major = 9;
  facts.sms = 132;
  facts.shared_bytes = 232448;
  facts.l2_bytes = std::size_t{60} << 20;
  facts.clock = 1.98e9;
  facts.memory_bandwidth = 2 * 3.201e9 * 6016 / 8;  // two transfers a clock of 6016 bits
  return facts;
}

}  // namespace convoy::cuda
