// Kernel `spike_resident`: what a launch is given.
#pragma once

#include <cstdint>

#include "cuda/sm80/spike_resident_plan.hpp"

namespace convoy::cuda::sm80 {

/// Images of so many bytes come with the launch: nobody waits for a read across PCIe.
inline constexpr Index most_inline_bytes = 1024;

/// What the packing found of a layer's weights.
struct ResidentScale {
  float scale = 0;  // of its sums, rounded
  float rest = 0;   // what that lacks; 0 of all layers but the one that reads pixels
  int terms = 2;    // f16 numbers a weight; 1: all lo are 0, their products change no bit
};

struct ResidentParams {
  ResidentLayout at;
  ResidentScale of[most_layers] = {};
  const void* constants = nullptr;        // copied to shared memory
  const void* linear = nullptr;           // weights of linear layers
  const std::uint16_t* values = nullptr;  // f16, [C][256]; null: that of pixel u is u
  // Of the run.
  Index n = 0;
  const std::uint8_t* x = nullptr;  // null: image
  alignas(16) std::uint8_t image[most_inline_bytes];
  float* y[most_layers] = {};  // of each layer; of a mean its logits; null: not wanted
  std::int32_t* labels = nullptr;
};

}  // namespace convoy::cuda::sm80
