// The first family's host arithmetic: what fits, the geometry, weights. Needs no CUDA.
#pragma once

#include <string>
#include <vector>

#include "core/serves.hpp"
#include "cuda/device_facts.hpp"
#include "cuda/limits.hpp"
#include "cuda/tensor_map_args.hpp"

namespace convoy::cuda::sm90 {

/// Elements of a row are counted with 32 bits; tiles by their layout.
inline constexpr Limits first_limits{.row_elements = Index{1} << 30};

/// How a tile lies in shared memory. A brick of the image is stored in units of 16 bytes: two
/// neighbouring pixels of four channels, beginning at every stride-th pixel.
struct FirstLayout {
  int conv_rows = 0;         // of a tile; it is 16 columns wide
  int out_w = 0, out_h = 0;  // pixels of y a tile gives
  // A warpgroup takes `run` neighbouring tiles of a row of tiles from left to right. Runs begin
  // `run_pitch` pixels of y apart: where windows overlap, one less than they have, because a run's
  // first window wants the convolution's column before it and is left to the run before.
  int run = 1, run_pitch = 0;
  int lead = 0;                       // zero taps in front of a filter row
  int row_taps = 0;                   // with them and more behind: a multiple of 4
  int brick_rows = 0, units = 0;      // of the stored image; units of a row
  int pitch = 0;                      // bytes of a stored row
  int k_stride = 0, step_stride = 0;  // between core matrices of a k16 step, between steps
  int bricks = 0;                     // slots of the ring
  bool raw = false;  // rows of the image come through TMA, as they are: needs 16-byte rows
  int raw_pitch = 0, raw_bytes = 0;  // of a row and of a brick of them
  int brick_bytes = 0, w_bytes = 0, staging = 0, shared_bytes = 0;
  int k_blocks = 0, runs_x = 0, runs_y = 0, grid = 0;
};

// Which pool; halo, which has one, asks with PoolKind where a window's values lie.
enum class FirstPool { none, max2, max3 };  // max3: 3x3, stride 2, pad 1
FirstPool first_pool(const Stage& stage);   // of a stage that fits

constexpr int raw_slots = 4;  // of rows of the image: two for each producing warpgroup

inline constexpr Serves served_by_first{
    .types = halves | Types(DType::u8, {DType::f16, DType::bf16}),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = false,
    .groups = false,
    .bias = true,
    .norm = true,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = none_or_max2 | PoolForm::max3s2p1,
    .pools_first = true,
    .keep = nothing,
};

/// Adds each reason why the family can't run a legal stage beyond what it does not serve.
void refuse_first(const Stage& stage, const DeviceFacts& device, Reasons& why);
/// Every reason why the family can't run a legal stage, for callers that have no Kernel; empty: it
/// can.
Reasons first_refusals(const Stage& stage, const DeviceFacts& device);
/// bricks < 2: it does not fit.
FirstLayout first_layout(const Stage& stage, const DeviceFacts& device);
TensorMapArgs first_x_map(const Stage& stage, const FirstLayout& layout);  // where layout.raw
/// Of tiles with all their columns; of the first tile of a run, without its first one.
TensorMapArgs first_y_map(const Stage& stage, const FirstLayout& layout, Index pixel_stride,
                          bool without_first);

/// Weights [K,R,S,C] as core matrices without swizzle: for each block of 64 channels and each k16
/// step two columns of eight core matrices (eight channels x 16 bytes). Taps and channels that do
/// not exist are zero. They depend on layout.lead and layout.row_taps.
std::vector<float> first_weights(const Stage& stage, const FirstLayout& layout, const float* w);

}  // namespace convoy::cuda::sm90
