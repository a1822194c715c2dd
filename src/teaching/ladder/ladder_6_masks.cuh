// Rung 6: predication by masks. Which taps of a pixel lie inside the image is found out once,
// before the loop: a bit for each row of the filter, and one for each column.
//
// In the loop a thread has the address of its pixel's first tap, adds the tap's distance (the same
// for all threads), and the two bits say whether it loads or has zeros. No division, no comparison
// of coordinates, no branch: a load with a predicate. (The document's masks are made by
// __ballot_sync, a bit a lane; lanes here need no one else's bits.)
#pragma once

#include "teaching/ladder/ladder_5_vector.cuh"

namespace convoy::cuda::teaching {

/// NEW: the copy. Filters have at most 16 rows and columns, which share the bits of a register.
template <class Tile, class Unit>
class MaskedCopy : public Copy<Tile, Unit> {
 public:
  __device__ MaskedCopy(const LadderParams& g, int m, int k) : Copy<Tile, Unit>(g, m, k) {
    this->template each<Tile::pixels>([&](int i, int row, int c) {
      inside_[i] = 0;
      first_[i] = g.x;
      if (m + row >= g.m) return;
      const auto [n, p, q] = g.in.at(m + row);
      for (int r = 0; r < g.r; ++r)
        inside_[i] |= static_cast<unsigned>(g.rows.inside(g.rows.at(p, r))) << r;
      for (int s = 0; s < g.s; ++s)
        inside_[i] |= static_cast<unsigned>(g.columns.inside(g.columns.at(q, s))) << (16 + s);
      first_[i] += n * g.x_image + g.rows.at(p, 0) * g.x_row + g.columns.at(q, 0) * g.x_pixel + c;
    });
  }
  __device__ __forceinline__ void fetch(const LadderParams& g, const Tap& tap, int slice) {
    const Index distance = static_cast<Index>(tap.r) * g.rows.dil * g.x_row +
                           static_cast<Index>(tap.s) * g.columns.dil * g.x_pixel + tap.c;
    this->template each<Tile::pixels>([&](int i, int, int c) {
      const bool inside = (inside_[i] >> tap.r & inside_[i] >> (16 + tap.s) & 1) != 0;
      Unit unit{};
      if (inside && tap.c + c < g.c) unit = *reinterpret_cast<const Unit*>(first_[i] + distance);
      this->pixels_[i] = unit;
    });
    this->fetch_filters(g, slice);
  }

 private:
  static constexpr int count = Copy<Tile, Unit>::units(Tile::pixels);
  const __half* first_[count];
  unsigned inside_[count];
};

template <class Tile>
__global__ void ladder_6_masks(const __grid_constant__ LadderParams g) {
  double_buffered<Tile, SquareSums, MaskedCopy<Tile, uint4>, WritePre>(g);
}

}  // namespace convoy::cuda::teaching
