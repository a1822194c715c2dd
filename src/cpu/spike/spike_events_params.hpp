// What the two halves of the kernel `spike_events` share: spike_events.cpp packs weights and says
// where it pays, spike_events_simd.cpp has the loops.
#pragma once

#include "cpu/spike/spike_events.hpp"

namespace convoy::cpu {

/// Filters of a block: their sums are in registers.
inline constexpr Index event_block = 64;
/// Steps of a group, whose sums are made together.
inline constexpr Index event_steps = 4;

/// Sums of a pixel and filter: one for each pattern of a group's steps in which an input fires.
constexpr Index patterns_of(Index steps) {
  constexpr Index of_group = (Index{1} << event_steps) - 1;
  return steps / event_steps * of_group + (Index{1} << steps % event_steps) - 1;
}

struct SpikeEvents::Params {
  const float* w;
  const float* bias;
  const Slice* slices;
  Index slice_count, slice_rows;
  Index steps, k;
  Index n, out_h, out_w, pool;
  bool increments;
  Neuron neuron;
  // Input, in bytes: a step, an image, an output pixel down and right.
  const std::uint8_t* in;
  Index in_step, in_image, in_row, in_column;
  SpikeOutput out;
  float* mean;                    // [n,k]; null: spikes are wanted
  float* sums;                    // [group of steps][pixel of a tile][pattern][filter of a block]
  Index tile_rows, tile_columns;  // output windows of a tile
};

/// Computes p.n images with the best instruction set of this machine.
void run_spike_events(const SpikeEvents::Params& p);

}  // namespace convoy::cpu
