// How large register tiles are on an instruction set: facts that the loops are compiled with and
// that the cost models ask, of any machine.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "core/machine.hpp"

namespace convoy::cpu {

inline constexpr int max_tile_pixels = 12;
inline constexpr int max_tile_vectors = 4;

/// Index 0 of `vectors` is half a vector, where that is faster than a whole one whose other half is
/// waste; else its max_pixels is 0.
struct TileSizes {
  Index lanes = 0;      // filters of a vector
  bool halves = false;  // a tile one vector wide has it in two registers of half a vector
  std::array<int, max_tile_vectors + 1> max_pixels{};
  std::array<int, max_tile_vectors + 1> max_windows{};
  std::array<int, max_tile_vectors + 1> row_pixels{};  // of a tile of neighbours in a row

  constexpr int pixels(int vectors) const { return max_pixels[static_cast<std::size_t>(vectors)]; }
  constexpr Index width(int vectors) const { return vectors == 0 ? lanes / 2 : vectors * lanes; }
  /// Of so many filters in one block. A vector that is filled in part costs no more beside others
  /// than in a block of its own, which would pass over the pixels once more; but where a vector is
  /// two halves anyway, half of one is for nothing there.
  constexpr Index vectors_of(Index filters) const {
    return std::max<Index>(1, halves ? filters / lanes : (filters + lanes - 1) / lanes);
  }
  /// Those of `vectors` that the registers hold and that are no wider than so many filters, whose
  /// tile would be that of the next smaller width.
  std::vector<int> widths(Index filters, std::initializer_list<int> vectors) const {
    std::vector<int> fitting;
    std::copy_if(vectors.begin(), vectors.end(), std::back_inserter(fitting),
                 [&](int wide) { return pixels(wide) != 0 && wide <= vectors_of(filters); });
    return fitting;
  }
};

/// A sum for each pixel and vector, a vector of weights and an input fill the registers.
constexpr TileSizes tile_sizes(int lanes, int registers, bool halves) {
  if (registers < 32) return {lanes, false, {0, 12, 6, 4, 0}, {0, 3, 1, 1, 0}, {0, 12, 6, 4, 0}};
  if (lanes < 16) return {lanes, false, {0, 12, 12, 8, 6}, {0, 3, 3, 2, 1}, {0, 16, 12, 8, 6}};
  // Halves where a whole vector would do: 8 filters need not pay for 16. And a tile one vector wide
  // is bound by its broadcasts, of which a core that splits vectors does twice as many to halves;
  // one that does not would lose half of its multiply-adds.
  return {lanes, halves, {12, 12, 12, 8, 6}, {3, 3, 3, 2, 1}, {16, halves ? 12 : 16, 12, 8, 6}};
}

inline TileSizes tile_sizes(const Machine& machine) {
  return tile_sizes(machine.vector_floats, machine.vector_registers, machine.halves);
}

}  // namespace convoy::cpu
