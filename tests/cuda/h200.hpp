// The facts of an H200, for tests that need no GPU.
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
  facts.memory_bandwidth = 4.8e12;
  return facts;
}

}  // namespace convoy::cuda
