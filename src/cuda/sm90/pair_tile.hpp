// Host side of the pair family: two stages in one launch. Which pairs and tiles exist, how they lie
// in shared memory, how long they should take. Plain arithmetic; needs no GPU.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cuda/sm90/halo_tile.hpp"

namespace convoy::cuda::sm90 {

/// (N, instructions) pairs that are compiled: pixel boxes whose sides are multiples of 4, so that
/// the middle tile holds whole windows of the second pool. With 512 threads a kernel starts with
/// 128 registers a thread, which no instruction may exceed: N = 192 is the most.
inline constexpr std::array<Accumulator, 6> pair_accumulators{
    {{128, 2}, {64, 4}, {128, 1}, {64, 2}, {64, 1}, {32, 1}}};

/// The first stage's layout, with its staging areas (one a warpgroup) as the middle tile: 64 middle
/// channels each, a row of 128 bytes a middle pixel. What the second stage needs lies behind it.
struct PairLayout {
  HaloLayout first;  // x_slots = 0: the tile does not serve the pair
  int sharers = 1;   // channel blocks that read one box of x, in ping-pong: 1 or 2
  int areas = 1;     // staging areas that make one middle tile: 64 middle channels each
  int columns = 0;   // of the second GEMM
  int window_i = 0, window_j = 0;  // windows from one instruction, unit of the first to the next
  int blocks = 0;                  // of 64 output channels, an even number
  int w2_slot = 0, w2_slots = 0;   // a slot holds the weights of one block
  int staging2 = 0;                // of two that take turns
  int shared_bytes = 0, grid = 0;
};

/// Every reason why the two stages can't run in one launch on any tile; empty: they can.
std::vector<std::string> pair_refusals(const Stage& first, const Stage& second,
                                       const DeviceFacts& device);

/// The layout, or why the tile does not serve the pair: first.x_slots is 0 then.
PairLayout pair_layout(const Stage& first, const Stage& second, const HaloTile& tile,
                       const DeviceFacts& device);

/// Predicted seconds of one run.
double pair_seconds(const Stage& first, const HaloTile& tile, const PairLayout& layout);

/// Tiles that serve the pair, best predicted first.
std::vector<HaloTile> pair_tiles(const Stage& first, const Stage& second,
                                 const DeviceFacts& device);

/// Tensor map arguments of the second weights and of the output. Pixel stride in elements.
TensorMapArgs pair_w_map(const Stage& second);
TensorMapArgs pair_y_map(const Stage& second, const HaloTile& tile, Index pixel_stride);

}  // namespace convoy::cuda::sm90
