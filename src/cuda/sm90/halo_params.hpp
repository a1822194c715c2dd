// What one launch of a halo kernel is told. Everything that does not change the code it compiles
// to.
#pragma once

#include <cuda.h>

#include "cuda/clamp.hpp"
#include "cuda/sm90/divide.hpp"
#include "cuda/sm90/halo_tile.hpp"

namespace convoy::cuda::sm90 {

struct HaloParams {
  CUtensorMap x, w, y;
  const float* bias;
  Clamp act;
  int k;
  int chunks, views, slot_chunks, slot_views;
  int load_chunks, chunk_channels;  // that one load brings; from one to the next along axis 0
  int taps, slab_taps, slabs;       // of a slot, of a slab; slabs of a tile
  Divisor k_blocks, tiles_x, tiles_y;
  int tiles;
  int cta_channels, cta_w, cta_h, cta_n;  // of a CTA's tile, in output channels and conv pixels
  int step_w, step_h, first_w, first_h;   // the convolution's stride; minus the padding
  int window;                             // of the pool: 1 or 2
  bool images, pingpong, resident, half;
  int sharers = 1;  // 2: warpgroups in ping-pong take both channel blocks of a box that loads once
  int warpgroup_channels, warpgroup_rows, warpgroup_columns;  // from warpgroup 0's tile to 1's
  int x_slots, w_slots, x_slot, w_slot;
  int early_slabs;     // of weights, that are asked for before the first pixels have come
  int x_bytes, x_box;  // that a slot's loads bring; from one box to the next
  int skip_x, skip_x_odd, skip_w,
      skip_w_odd;  // a tile's slots: beyond whole rounds; whether those are odd
  int w_offset, staging_offset, barrier_offset, staging;
  int group_stride, instruction_stride, warpgroup_stride;
  int store_i, store_j, stored_pixels;
  int part_x, part_y, part_n;  // of the output, from one instruction's pixels to the next's
  int piece_x, piece_y;        // from one piece of an instruction's to the next
  int store_buffers;
  View view[max_taps];
  std::uint16_t tap_shift[max_taps];
};

/// What follows from stage, tile and layout: all but the maps, the bias and the number of tiles.
HaloParams halo_params(const Stage& stage, const HaloTile& tile, const HaloLayout& layout) noexcept;

}  // namespace convoy::cuda::sm90
