// What one launch of a halo kernel with a neuron is told.
#pragma once

#include "cuda/charge.hpp"
#include "cuda/sm90/halo_params.hpp"

namespace convoy::cuda::sm90 {

struct NeuronParams : HaloParams, DeviceNeuron {
  const float* membrane_in;  // [n,P,Q,K]; null: zero
  float* membrane_out;       // likewise; null: not wanted
  int held;                  // steps that the sums of one tile are held for; 1: each has its own
  // A CTA takes the same tile in all steps, one after the other.
  Divisor by_grid, by_turns;
  int turns;             // tiles of a place
  int step_n, step_x;    // of x's images, or of a line's pixels, from step to step
  int cells_x, cells_y;  // the plane of membranes, or line
  int cells_n;
  // Pixels from one instruction to the next: a group's lie as `Inner` says.
  int instruction_x, instruction_n;
  int brick_w;  // pixels in a row of a brick; 0: it is none
  bool line;
};
static_assert(sizeof(NeuronParams) + sizeof(CUtensorMap) + 8 * sizeof(void*) <=
                  measured_params + 128,
              "two lines more than HaloParams, with the same room");

/// What follows from stage and layout: all but the maps, the operands and the number of tiles.
NeuronParams neuron_params(const Stage& stage, const HaloTile& tile, const HaloLayout& layout);

}  // namespace convoy::cuda::sm90
