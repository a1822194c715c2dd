// Who does what in a CTA of `few`: where a tile lies, which sums of products a thread holds and
// where they go in shared memory, which outputs it adds up. Host and device: the kernel calls
// these, and so does what shows it (inspect/kernel_map).
#pragma once

#include "cuda/divide.hpp"
#include "cuda/sm90/few_layout.hpp"
#include "cuda/sm90/place.hpp"

namespace convoy::cuda::sm90 {

constexpr int few_consumers = 256;  // threads of a CTA that multiply; 128 more load

/// First conv pixel and image of tile number t; `columns`, `rows`: of tiles in an image.
CONVOY_HD Place few_place(const FewLayout& at, const Divisor& columns, const Divisor& rows, int t) {
  if (at.flat) return {0, t * at.out_w, 0, 0};
  const Place tile = tile_place(t, columns, rows);
  return {0, tile.x * at.out_w, tile.y * at.out_h, tile.n};
}

/// Block of 64 pixels that warpgroup g takes as its number b.
CONVOY_HD int few_block(int b, int g) {
  return 2 * b + g;
}
/// The pixel of a block that a thread's registers have; the others lie 8 pixels on.
CONVOY_HD unsigned few_pixel(unsigned thread, int lane) {
  return thread / 32 % 4 * 16 + lane / 4;
}
/// Of a thread's registers of a block, pair i: its tap of all filters (a column of the
/// instruction), and the register of the first pixel; that of the one 8 pixels on is two further.
CONVOY_HD int few_tap(int lane, int i) {
  return i / 2 * 8 + 2 * (lane % 4) + i % 2;
}
CONVOY_HD int few_register(int i) {
  return i / 2 * 4 + i % 2;
}

/// How far the sums of tap (r, s) lie in z behind those of an output's first tap: floats. `across`:
/// taps of a filter's row. (Where the first lie stands in the kernel: behind a function ptxas
/// orders all of it anew.)
CONVOY_HD int few_z_tap(const FewLayout& at, int r, int s, int across) {
  return (r * across + s) * at.z_pitch + r * at.box_w + s;
}

}  // namespace convoy::cuda::sm90
