// What the two halves of the kernel `tap_pairs` share: tap_pairs.cpp decides what is multiplied
// with what, tap_pairs_simd.cpp transforms before and after.
#pragma once

#include "convoy/stage.hpp"
#include "cpu/register_tile.hpp"

namespace convoy::cpu::tap_pairs_loops {

/// Sums of an output tile of 2×2: three in each dimension.
inline constexpr int sums = 9;

/// Packed rows and their differences. `to` has three planes, `plane` floats apart: each value less
/// the one `column_step` floats on; less the one `row_step` rows on, but for the last rows; and
/// both.
struct DifferenceArgs {
  const float* x = nullptr;
  Index rows = 0, pitch = 0, floats = 0;
  Index column_step = 0, row_step = 0;
  float* to = nullptr;
  Index plane = 0;
};

/// A row of 2×2 output tiles for one block of filters. Of tiles that reach beyond the output, sums
/// that only results there are made of may hold anything.
struct OutputArgs {
  const float* m = nullptr;  // [sums][tiles][width], m_pitch floats from a sum to the next
  Index m_pitch = 0, width = 0;
  Index tiles = 0;
  Index valid = 0;              // filters to store
  const float* bias = nullptr;  // [width]
  Clamp clamp;
  float* y = nullptr;         // the first tile's first result
  Index row = 0, column = 0;  // floats from a result to the one below, and to the next
  Index rows = 2;             // rows of the tiles inside the output
  Index last_columns = 2;     // columns of the last tile inside the output
  // For results that are not finite, which are made again tap by tap.
  const Stage* stage = nullptr;
  const float* x = nullptr;  // packed rows, where the first tile's input begins
  Index pixel_pitch = 0, row_pitch = 0;
  const float* w = nullptr;  // [K,R,S,C], from the block's first filter
  Index p = 0, q = 0;        // of the first tile's first result
};

struct Loops {
  void (*differences)(const DifferenceArgs& args) = nullptr;
  void (*output)(const OutputArgs& args) = nullptr;
};
const Loops& loops();

}  // namespace convoy::cpu::tap_pairs_loops
