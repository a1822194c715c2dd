// A step of neurons on sums that lie in a cache.
#pragma once

#include "convoy/stage.hpp"

namespace convoy::cpu::neuron_loops {

/// What a neuron does in a step (math::charge, fire, reset).
struct Neuron {
  bool leaky = false, soft = false;
  float tau = 2, threshold = 1;
};

/// One step of neighbouring pixels.
struct NeuronArgs {
  Neuron neuron;
  Index pixels = 0, channels = 0;
  const float* sums = nullptr;    // [pixels][channels]
  const float* before = nullptr;  // likewise: the membranes; null: 0
  float* after = nullptr;         // likewise; may be `before`; null: not wanted
  float* spikes = nullptr;        // 1 or 0; from pixel to pixel:
  Index spike_pitch = 0;
};

using Step = void (*)(const NeuronArgs&);
/// Of the instruction set in use.
Step step();

}  // namespace convoy::cpu::neuron_loops
