// Kernel `spike_resident`: what a launch is given.
#pragma once

#include <cstdint>

#include "cuda/sm80/spike_resident_plan.hpp"

namespace convoy::cuda::sm80 {

struct ResidentParams {
  ResidentLayout at;
  float scale[most_layers] = {};          // of each layer's sums, a power of two
  const void* constants = nullptr;        // copied to shared memory
  const void* linear = nullptr;           // weights of linear layers
  const std::uint16_t* values = nullptr;  // f16, [C][256]; null: pixel u is u - 127.5
  // Of the run.
  Index n = 0;
  const std::uint8_t* x = nullptr;
  float* y[most_layers] = {};  // of each layer; of a mean its logits; null: not wanted
  std::int32_t* labels = nullptr;
};

}  // namespace convoy::cuda::sm80
