// Register tiles: the innermost loops that the kernels `direct` and `first` share.
//
// A tile holds the sums of some pixels × some vectors of filters in registers while it walks over
// the taps and channels. It knows pixels only by where their data lie, so a tile may run across
// rows and images, and four pixels may be a pooling window. Tiles within one row need no list of
// places: two pitches say it all.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "convoy/stage.hpp"

namespace convoy::cpu {

/// `length` neighbouring floats of each pixel's input, `offset` floats from the pixel's first, that
/// meet the packed weights of depth `depth` and on.
struct Run {
  Index offset = 0, length = 0, depth = 0;
};

/// Activation as the tile applies it: everything but leaky is min(hi, max(lo, v)).
struct Clamp {
  float lo = 0, hi = 0;
  float slope = 1;
  bool leaky = false;
};
Clamp clamp_of(const Activation& act);

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
  Clamp clamp;
  float* y = nullptr;
  const Index* to = nullptr;  // [pixels], pooled: [pixels / 4]: where each result goes, from y
  const Index* next_to =
      nullptr;        // [pixels]: where the next tile's go, whose lines this one fetches
  Index y_pitch = 0;  // in a row instead: from a result to the next
  Index valid = 0;    // filters to store, ≤ width
  // A sum may be made in parts: all but the first resume it, all but the last suspend it.
  float* sums = nullptr;  // [pixels][width], 64-byte aligned
  bool resume = false, suspend = false;
  // Fetched into the second-level cache on the way, for later: 64-byte lines a run.
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

/// The maximum over a window of pixels, each `width` filters, NaN wins.
struct WindowArgs {
  const float* from = nullptr;  // first pixel inside the plane
  Index rows = 0, columns = 0;
  Index row_pitch = 0, column_pitch = 0;  // floats, dilation included
  float* to = nullptr;
  Index valid = 0;
};

inline constexpr int max_tile_pixels = 12;
inline constexpr int max_tile_vectors = 4;

/// What one instruction set offers. Index 0 of `vectors` is half a vector, where that is faster
/// than a whole one whose other half is waste; else its max_pixels is 0.
struct TileLoops {
  Index lanes = 0;      // filters of a vector
  bool halves = false;  // a tile one vector wide has it in two registers of half a vector
  std::array<int, max_tile_vectors + 1> max_pixels{};
  std::array<int, max_tile_vectors + 1> max_windows{};
  std::array<std::array<TileLoop, max_tile_pixels + 1>, max_tile_vectors + 1> plain{};
  std::array<std::array<TileLoop, max_tile_pixels / 4 + 1>, max_tile_vectors + 1> pooled{};
  std::array<int, max_tile_vectors + 1> row_pixels{};
  std::array<RowLoop, max_tile_vectors + 1> row{};
  void (*window)(const WindowArgs&) = nullptr;

  Index width(int vectors) const { return vectors == 0 ? lanes / 2 : vectors * lanes; }
  /// Of so many filters in one block. A vector that is filled in part costs no more beside others
  /// than in a block of its own, which would pass over the pixels once more; but where a vector is
  /// two halves anyway, half of one is for nothing there.
  Index vectors_of(Index filters) const {
    return std::max<Index>(1, halves ? filters / lanes : (filters + lanes - 1) / lanes);
  }
};
/// Those of the instruction set that run-time dispatch chose. The arithmetic is "sequential": an
/// output is one fp32 FMA accumulator that starts at 0 and takes taps in the order r, s, c.
const TileLoops& tile_loops();

}  // namespace convoy::cpu
