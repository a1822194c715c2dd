// Register tiles: the innermost loops of `direct` and `tap_pairs`.
//
// A tile holds the sums of some pixels × some vectors of filters in registers while it walks over
// the taps and channels. It knows pixels only by where their data lie, so a tile may run across
// rows and images, and four pixels may be a pooling window. Tiles within one row
// skip the index list: two pitches say where pixels and results lie.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "convoy/stage.hpp"
#include "cpu/shared/epilogue.hpp"
#include "cpu/shared/tile_sizes.hpp"

namespace convoy::cpu {

/// `length` neighbouring floats of each pixel's input, `offset` floats from the pixel's first, that
/// meet the packed weights of depth `depth` and on.
struct Run {
  Index offset = 0, length = 0, depth = 0;
};

struct TileArgs {
  const float* x = nullptr;
  const Index* at = nullptr;  // [pixels]: where each pixel's input begins, from x
  Index x_pitch = 0;          // in a row instead: from a pixel's first input to the next one's
  const Run* runs = nullptr;
  Index run_count = 0;
  // Instead of runs, where those would be short: how far from the pixel's first each input lies.
  const Index* offsets = nullptr;
  Index depth = 0;              // of offsets, or of all runs
  const float* w = nullptr;     // [depth][width], 64-byte aligned
  const float* bias = nullptr;  // [width]
  Epilogue epilogue;
  float* y = nullptr;
  const Index* to = nullptr;  // [pixels], pooled: [pixels / 4]: where each result goes, from y
  const Index* next_to =
      nullptr;        // [pixels]: where the next tile's go, whose lines this one fetches
  Index y_pitch = 0;  // in a row instead: from a result to the next
  Index valid = 0;    // filters to store, ≤ width
  // A sum may be made in parts: all but the first resume it, all but the last suspend it.
  float* sums = nullptr;  // [pixels][width], 64-byte aligned
  bool resume = false, suspend = false;
  // Fetched into L2 on the way, for later: 64-byte lines a run.
  const float* ahead = nullptr;
  Index ahead_lines = 0;
  // The same evenly, so many floats a channel of the runs, by tiles three vectors wide and wider;
  // the others have no register left for it.
  const float* next = nullptr;
  Index next_floats = 0;
};
using TileLoop = void (*)(const TileArgs&);
/// Tiles of row_pixels neighbours one after the other; their sums are not made in parts.
using RowLoop = void (*)(const TileArgs&, Index tiles);

/// The maximum over each window of pixels, NaN wins.
struct WindowArgs {
  const float* from = nullptr;  // first pixel inside the plane
  Index rows = 0, columns = 0;
  Index row_pitch = 0, column_pitch = 0;  // floats, dilation included
  float* to = nullptr;
  Index valid = 0;
  Index windows = 1;                   // alike, one after the other
  Index from_pitch = 0, to_pitch = 0;  // from each to the next
};

/// What one instruction set offers, by vectors and pixels or windows.
struct TileLoops : TileSizes {
  std::array<std::array<TileLoop, max_tile_pixels + 1>, max_tile_vectors + 1> plain{};
  std::array<std::array<TileLoop, max_tile_pixels / 4 + 1>, max_tile_vectors + 1> pooled{};
  std::array<RowLoop, max_tile_vectors + 1> row{};
  void (*window)(const WindowArgs&) = nullptr;
};
/// Those of the instruction set that run-time dispatch chose. The arithmetic is "sequential": an
/// output is one fp32 FMA accumulator that starts at 0 and takes taps in the order r, s, c.
const TileLoops& tile_loops();

}  // namespace convoy::cpu
