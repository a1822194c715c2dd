// What the parts of the kernel `tap_pairs` share: tap_pairs.cpp decides what is multiplied with
// what and walks over the output, tap_pairs_cost.cpp predicts what that takes, tap_pairs_simd.cpp
// transforms before and after.
#pragma once

#include <array>
#include <vector>

#include "core/kernel.hpp"
#include "cpu/shared/padded_rows.hpp"
#include "cpu/shared/register_tile.hpp"

namespace convoy::cpu::tap_pairs_loops {

/// A product of one dimension: the value `offset` on from the tile's first, or its difference to
/// the one a stride on, times ±(first tap + second tap).
struct Factor {
  Index offset = 0;
  bool difference = false;
  double sign = 1;
  Index first = 0, second = -1;
};
using Factors = std::array<std::vector<Factor>, 3>;  // of m0, m1, m2
Factors factors_of(Index taps, Index stride);
/// Products of a dimension's three sums, for `tiles` tiles of which so many have two results.
Index products_of(const Factors& factors, Index tiles, Index whole);

/// The padded input as a step packs it. Shapes are those of the stage, here and below: planning
/// asks for them often, and to compute them anew is a third of its time.
PaddedRows rows_of(const Stage& stage, const Shapes& shapes);
/// Packed rows behind so many rows of tiles.
Index packed_rows(const Stage& stage, Index tile_rows);
/// Floats of these, or of one of their differences. A vector behind the last row is written to,
/// too.
Index plane_floats(const PaddedRows& rows, Index tile_rows);
/// Rows of tiles at a time, with blocks of `width` filters. More of them share more of what is
/// packed and of the weights that are read; what each block of filters reads again stays in L2,
/// with a block's sums.
Index step_of(const PaddedRows& rows, const Shapes& shapes, const Machine& machine, Index width);
/// `vectors`: of filters in a register tile, at most.
Cost cost_of(const Stage& stage, int vectors, const Machine& machine);

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
  Epilogue epilogue;
  float* y = nullptr;         // the first tile's first result
  Index row = 0, column = 0;  // floats from a result to the one below, and to the next
  Index rows = 2;             // rows of the tiles inside the output
  Index last_columns = 2;     // columns of the last tile inside the output
  // For results that are not finite, which are made again tap by tap.
  const Stage* stage = nullptr;
  const float* x = nullptr;  // packed rows, where the first tile's input begins
  Index pixel_pitch = 0, row_pitch = 0;
  const float* w = nullptr;  // [K,R,S,C], from the block's first filter
  Index p = 0;               // the row of the first tile's results
};

struct Loops {
  void (*differences)(const DifferenceArgs& args) = nullptr;
  void (*output)(const OutputArgs& args) = nullptr;
};
const Loops& loops();

}  // namespace convoy::cpu::tap_pairs_loops
