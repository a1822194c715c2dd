// Who does what in a CTA of the halo family: where a tile lies, which boxes of pixels come to a
// slot, which sums a thread holds and where they are staged. Host and device: the kernel calls
// these, and so does what shows it (inspect/kernel_map).
#pragma once

#include <cstdint>

#include "cuda/divide.hpp"
#include "cuda/sm90/halo_layout.hpp"
#include "cuda/sm90/place.hpp"

namespace convoy::cuda::sm90 {

/// First channel, conv pixel and image of tile number t, whose divisors count the tiles along
/// these axes: channel block fastest, so that CTAs at work together share pixels.
CONVOY_HD Place halo_place(const KernelLayout& at, const Divisor& by_k, const Divisor& by_x,
                           const Divisor& by_y, int t) {
  const int block = by_k.reduce(t);
  const Place tile = tile_place(t, by_x, by_y);
  return {block * at.cta_channels, tile.x * at.cta_w, tile.y * at.cta_h, tile.n * at.cta_n};
}

/// Calls `load` with the coordinates of each box of a slot of pixels, that of the given first chunk
/// and box, in the order of their map (halo_x_map). Outside x TMA writes zeros. `p.at` is the
/// layout.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // the kernel's `load` is for the device
#endif
template <class Params, class Load>
CONVOY_HD void each_box(const Params& p, const Place& at, int first_chunk, int first_box,
                        Load load) {
  const int x0 = at.x * p.at.step_w + p.at.first_w, y0 = at.y * p.at.step_h + p.at.first_h;
  for (int b = first_box; b < first_box + p.at.slot_boxes; ++b) {
    const BoxPlace& box = p.at.box_place[b];
    const int x = x0 + box.column * p.at.box_x, y = y0 + box.row * p.at.box_y;
    const int c1 = p.at.images ? at.n : x, c2 = p.at.images ? x : y, c3 = p.at.images ? y : at.n;
    for (int chunk = first_chunk; chunk < first_chunk + p.at.slot_chunks; chunk += p.at.load_chunks)
      load(chunk * p.at.chunk_channels, c1, c2, c3, p.at.chunk_channels == 0 ? chunk : 0);
  }
}

/// A tile of a neuron's stage: its place, and the first of its time steps.
struct NeuronPlace : Place {
  int step;
};

/// Where the tile's x is: with all steps' images one behind the other (`step_n` of them a step), or
/// the pixels of a line (`step_x`), unless the steps are an axis of x.
template <class Params>
CONVOY_HD Place in_x(const Params& p, const NeuronPlace& at) {
  Place moved = at;
  moved.n += at.step * p.step_n;
  moved.x += at.step * p.step_x;
  return moved;
}

/// Where in [n,P,Q,K] a membrane lies: 32 bits hold it (halo_limits).
CONVOY_HD int membrane_at(int n, int y, int x, int cells_y, int cells_x, int channels, int k) {
  return ((n * cells_y + y) * cells_x + x) * channels + k;
}

#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Params, class Load>
CONVOY_HD void each_box(const Params& p, const NeuronPlace& at, int first_chunk, int first_box,
                        Load load) {
  if (p.at.time_steps == 1)
    each_box(p, in_x(p, at), first_chunk, first_box, load);
  else
    each_box(p, static_cast<const Place&>(at), first_chunk, first_box,
             [&](int c0, int c1, int c2, int c3, int) { load(c0, c1, at.step, c2, c3); });
}

/// Of a warpgroup's 64 channels the lower one of a lane's two, which lie 8 apart: its rows of
/// wgmma's result (ptx/wgmma.cuh).
CONVOY_HD int halo_channel(int lane, int warp) {
  return 16 * warp + lane / 4;
}

/// Row of the staged tile for column `c` of fragment j of instruction i, where windows are pooled
/// out of groups that are rows of eight pixels (`pooled` of them): columns that do not exist go to
/// the spare row behind the tile.
CONVOY_HD int staged_row_of_pixels(const KernelLayout& at, int i, int j, int c, int pooled) {
  const int y = 2 * j + (c & 1);
  return y < pooled ? i * at.store_i + y * at.store_j + (c >> 1) : at.stored_pixels;
}
/// The same where they are pooled out of groups that are a pixel of eight images.
CONVOY_HD int staged_row_of_images(const KernelLayout& at, int i, int j, int c) {
  return i * at.store_i + j * at.store_j + c;
}

}  // namespace convoy::cuda::sm90
