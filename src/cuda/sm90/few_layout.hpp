// The few family's host arithmetic: what fits, the geometry. Needs no CUDA.
#pragma once

#include <string>
#include <vector>

#include "core/serves.hpp"
#include "cuda/device_facts.hpp"
#include "cuda/limits.hpp"
#include "cuda/tensor_map_args.hpp"

namespace convoy::cuda::sm90 {

/// Tiles are counted by their layout.
inline constexpr Limits few_limits{};
/// Of a flat layout: pixels of the batch are counted with 32 bits, also behind the last one.
inline constexpr Index most_flat_pixels = (Index{1} << 30) - 1;

constexpr int few_block_pixels = 64;  // of an instruction: its M
constexpr int few_blocks = 10;        // the most blocks of pixels that a box may have
/// Of a flat layout: columns times the most blocks, for half of a multiprocessor's registers.
constexpr int few_flat_columns = 128;

/// A tile of the convolution's output and the box of input pixels it needs, and where a CTA's
/// shared memory holds what.
struct FewLayout {
  bool flat = false;         // a 1x1 alone: a tile is a run of pixels of the whole batch
  int out_w = 0, out_h = 0;  // conv pixels of a tile
  int box_w = 0, box_h = 0;
  int blocks = 0;             // of 64 pixels in a box
  int columns = 0;            // of the instruction: the taps of all filters, then zeros
  int chunks = 0;             // of 64 input channels
  int w_bytes = 0;            // of a chunk's weights
  bool resident = false;      // all weights stay; else each slot has its chunk's
  bool z_over_slots = false;  // for want of room; then a tile's loads wait for the one before it
  int slots = 0, slot_bytes = 0;
  int z_pitch = 0;                     // floats from tap to tap
  int barriers = 0, shared_bytes = 0;  // where the barriers begin; all of it
  int tiles_x = 0, tiles_y = 0, images = 0, grid = 0;
};

inline constexpr Serves served_by_few{
    .types = halves,
    .layouts = Layout::nhwc,
    .strides = false,
    .dilation = false,
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

/// Adds each reason why the family can't run a legal stage beyond what it does not serve.
void refuse_few(const Stage& stage, const DeviceFacts& device, Reasons& why);
/// Every reason why the family can't run a legal stage, for callers that have no Kernel; empty: it
/// can.
Reasons few_refusals(const Stage& stage, const DeviceFacts& device);
/// The layout that few_cycles likes best; slots == 0: none fits.
FewLayout few_layout(const Stage& stage, const DeviceFacts& device);
std::string few_tile_name(const FewLayout& layout);
/// Tiles of the stage's batch, which may be smaller than that of the layout's stage.
Index few_tiles(const Stage& stage, const FewLayout& layout);
/// Predicted cycles of a multiprocessor from the first load to the last store.
double few_cycles(const Stage& stage, const FewLayout& layout, const DeviceFacts& device);
TensorMapArgs few_x_map(const Stage& stage, const FewLayout& layout, Index pixel_stride);
TensorMapArgs few_w_map(const Stage& stage, const FewLayout& layout);

}  // namespace convoy::cuda::sm90
