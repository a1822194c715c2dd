// Who does what in the passes of `winograd4`: which tile and channels a thread has, and where its
// 36 transforms lie. Host and device: the kernels call these, and so does what shows them
// (inspect/kernel_map).
#pragma once

#include "cuda/wrap/winograd_tile.hpp"
#include "math/host_device.hpp"

namespace convoy::cuda {

constexpr int winograd_threads = 256;  // of a CTA

/// A tile's first output.
struct WinogradTile {
  Index number, image;
  int p, q;
  CONVOY_HD WinogradTile(const WinogradTiles& tiles, Index number_) : number(number_) {
    const int of_image = tiles.down * tiles.across;
    image = number / of_image;
    const int rest = static_cast<int>(number - image * of_image);
    p = rest / tiles.across * math::winograd4::outputs;
    q = rest % tiles.across * math::winograd4::outputs;
  }
};

/// What thread `i` of a launch has of its tile: the first of `lanes` neighbouring channels.
CONVOY_HD int winograd_channel(Index i, int of_tile, int lanes) {
  return static_cast<int>(i % of_tile) * lanes;
}
/// Where a tile's transforms begin, of one of `channels`: floats.
CONVOY_HD Index winograd_first(Index tile, int channels) {
  return tile * math::winograd4::points * channels;
}
/// And from there product (r, s).
CONVOY_HD Index winograd_product(int r, int s, int channels) {
  return static_cast<Index>(r * math::winograd4::inputs + s) * channels;
}

}  // namespace convoy::cuda
