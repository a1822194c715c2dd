// Host side of the pair family: two stages in one launch. Which pairs and tiles exist, how they lie
// in shared memory, how long they should take. Plain arithmetic; needs no GPU.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cuda/sm90/halo_layout.hpp"

namespace convoy::cuda::sm90 {

/// (N, instructions) pairs that are compiled: pixel boxes whose sides are multiples of 4, so that
/// the middle tile holds whole windows of the second pool. With 512 threads a kernel starts with
/// 128 registers a thread, which no instruction may exceed: N = 192 is the most.
inline constexpr std::array<Accumulator, 6> pair_accumulators{
    {{128, 2}, {64, 4}, {128, 1}, {64, 2}, {64, 1}, {32, 1}}};

/// How the second stage lies behind the first one's shared memory. Sizes and offsets in bytes.
struct SecondLayout {
  int areas = 1;    // staging buffers of the first stage that make one middle tile
  int columns = 0;  // of the second GEMM
  int window_i = 0,
      window_j = 0;             // windows from one instruction, fragment of the first to the next
  int log2_across = 0;          // windows of the second pool across a tile
  int shrink = 0;               // conv pixels of the first stage to pixels of y: 2 or 4
  int blocks = 0;               // of 64 output channels, an even number
  int w_slot = 0, w_slots = 0;  // a slot holds the weights of one block
  bool w_resident = false;      // all blocks have a slot: loaded once
  int staging = 0;              // of one of two buffers that take turns
  int w_offset = 0, staging_offset = 0;
};

/// The first stage's layout, with its staging buffers (one a warpgroup) as areas of the middle
/// tile: 64 middle channels each, a row of 128 bytes a middle pixel. What the second stage needs
/// lies behind it.
struct PairLayout {
  HaloLayout first;  // x_slots = 0: the tile does not serve the pair
  SecondLayout second;
  int shared_bytes = 0;
};

/// What each of the two stages may have: what `halo` serves, without neurons.
inline constexpr Serves served_by_pair{
    .types = served_by_halo.types,
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = false,
    .bias = true,
    .norm = false,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = none_or_max2,
    .pools_first = true,
    .keep = nothing,
};

/// Adds each reason why the two stages can't run in one launch on any tile, beyond what the family
/// does not serve.
void refuse_pair(const Stage& first, const Stage& second, const DeviceFacts& device, Reasons& why);

/// The layout, or why the tile does not serve the pair: first.x_slots is 0 then.
PairLayout pair_layout(const Stage& first, const Stage& second, const HaloTile& tile,
                       const DeviceFacts& device);

/// Predicted seconds of one run.
double pair_seconds(const Stage& first, const HaloTile& tile, const PairLayout& layout,
                    const DeviceFacts& device);

/// Tiles that serve the pair, best predicted first.
std::vector<HaloTile> pair_tiles(const Stage& first, const Stage& second,
                                 const DeviceFacts& device);

/// Tensor map arguments of the second weights and of the output. Pixel stride in elements.
TensorMapArgs pair_w_map(const Stage& second);
TensorMapArgs pair_y_map(const Stage& second, const HaloTile& tile, Index pixel_stride);

}  // namespace convoy::cuda::sm90
