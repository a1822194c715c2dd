// Steps of neurons on sums that lie in a cache.
#pragma once

#include "convoy/stage.hpp"

namespace convoy::cpu::neuron_loops {

/// What a neuron does in a step (math::charge, fire, reset).
struct Neuron {
  bool leaky = false, soft = false;
  float tau = 2, threshold = 1;
};

/// Steps with the same sums, of a row of neighbouring pixels or of windows of 2x2 pixels.
struct NeuronArgs {
  Neuron neuron;
  bool windows = false;  // whose spikes are pooled
  Index outputs = 0;     // pixels or windows
  Index channels = 0, steps = 1;
  const float* sums = nullptr;    // [outputs][channels], or two rows of [2*outputs][channels]
  const float* before = nullptr;  // likewise: the membranes; null: 0
  float* after = nullptr;         // likewise; may be `before`; null: not wanted
  Index row_pitch = 0;            // of these, from row to row
  float* spikes = nullptr;        // 1 or 0; from output to output and from step to step:
  Index spike_pitch = 0, spike_step = 0;
};

using Steps = void (*)(const NeuronArgs&);
/// Of the instruction set in use.
Steps steps();

}  // namespace convoy::cpu::neuron_loops
