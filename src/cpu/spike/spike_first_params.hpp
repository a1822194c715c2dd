// What the two halves of the kernel `spike_first` share: spike_first.cpp turns weights into
// integers and decides the spikes that their rounding leaves open, spike_first_simd.cpp does the
// rest.
#pragma once

#include "cpu/spike/spike_first.hpp"

namespace convoy::cpu {

struct SpikeFirst::Params {
  const std::uint8_t* images;
  Index n, image, row;  // images, bytes of one, bytes of one row
  const std::int16_t* weights;
  const std::int32_t *sure, *maybe;
  const Index *down, *across;
  Index downs, acrosses;  // tap pairs of two rows; tap pairs in the last row
  Index k, filter_blocks, steps;
  Index out_h, out_w;
  Index block_taps;  // the filter's width if its pixels can share loads, else 0
  bool pool;
  Index window_row, window_column, pixel_row, pixel_column;  // in values of the image
  SpikeOutput out;
  std::uint32_t* pairs;   // [image]: a value and the one a row below
  std::uint16_t* values;  // [image]: widened, so that two neighbours are a pair
  const void* self;
  bool (*decide)(const void* self, const std::uint8_t* image, Index k, Index row, Index column,
                 float threshold);
  const float* threshold;
};

/// Computes p.n images with the best instruction set of this machine.
void run_spike_first(const SpikeFirst::Params& p);

}  // namespace convoy::cpu
