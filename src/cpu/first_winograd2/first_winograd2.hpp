// What the two halves of the kernel `first_winograd2` share: first_winograd2.cpp decides who
// computes which rows, first_winograd2_simd.cpp computes.
#pragma once

#include "convoy/stage.hpp"
#include "cpu/shared/epilogue.hpp"

namespace convoy::cpu::first_winograd2_loops {

/// Transformed values of one position lie this many floats apart from the next position's, so that
/// the inner loop finds all sixteen at fixed offsets. A row of tiles is worked off in pieces.
inline constexpr Index piece_floats = 256;
/// Tiles of one piece.
constexpr Index piece_tiles(Index c) {
  return (piece_floats - 3 * c) / (2 * c);
}

/// A piece of a row of 2×2 output tiles for one block of filters.
struct PieceArgs {
  const float* v = nullptr;     // [16][piece_floats]: transformed input, tile t at 2·C·t
  const float* u = nullptr;     // [16][C][width]: transformed filters
  const float* bias = nullptr;  // [width]
  Index tiles = 0;
  Index valid = 0;  // filters to store
  Epilogue epilogue;
  bool pool = false;       // store the maximum of each tile, else its pixels
  float* y = nullptr;      // result of the first tile
  Index row = 0;           // floats from a result to the one below
  Index column = 0;        // floats from a result to the next; a tile without pool has two
  Index rows = 2;          // rows of the tiles inside the output
  Index last_columns = 2;  // columns of the last tile inside the output
};

/// Vectors of filters beside a tile: the two take six registers a vector.
constexpr int max_vectors_of(int registers) {
  return registers < 32 ? 1 : 2;
}

/// What one instruction set offers.
struct Loops {
  Index lanes = 0;
  int max_vectors = 0;
  /// Transforms `tiles` tiles whose upper left pixel is x; rows are row_pitch floats apart. Returns
  /// the largest magnitude, NaN or infinity if one was met.
  float (*transform)(const float* x, Index row_pitch, Index c, Index tiles, float* v) = nullptr;
  void (*multiply)(const PieceArgs& args, Index c, int vectors) = nullptr;  // c: 3 or 4
  /// a·b + c, rounded as in `multiply`.
  float (*multiply_add)(float a, float b, float c) = nullptr;
};
const Loops& loops();

}  // namespace convoy::cpu::first_winograd2_loops
