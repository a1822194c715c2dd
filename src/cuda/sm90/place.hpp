// Where a tile of the output lies. Host and device.
#pragma once

#include "cuda/divide.hpp"

namespace convoy::cuda::sm90 {

/// First channel, first column and row, first image; of what, the family says.
struct Place {
  int k, x, y, n;
};

/// Tile number t in tiles: columns fastest, then rows, then images. `across` and `down` of them
/// make an image.
CONVOY_HD Place tile_place(int t, const Divisor& across, const Divisor& down) {
  Place at;
  at.k = 0;
  at.x = across.reduce(t);
  at.y = down.reduce(t);
  at.n = t;
  return at;
}

}  // namespace convoy::cuda::sm90
