// The first family: layers with at most four input channels, where reading an image is cheap and
// writing the output is the cost. Host side: what fits, the geometry, the launch.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "convoy/stage.hpp"
#include "core/kernel.hpp"
#include "cuda/device.hpp"
#include "cuda/tensor_map.hpp"

namespace convoy::cuda::sm90 {

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

/// Every reason why the family can't run a legal stage; empty: it can.
std::vector<std::string> first_refusals(const Stage& stage, const DeviceFacts& device);
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

/// Device pointers; x NHWC with any strides (elements), f16, bf16 or u8, 16-byte aligned; y NHWC,
/// 16-byte aligned. With `norm`, x*scale + shift is rounded to the output type before the product.
struct FirstRun {
  Index n = 0;
  const void* x = nullptr;
  Strides x_stride;
  const float* bias = nullptr;
  const float* norm_scale = nullptr;
  const float* norm_shift = nullptr;
  void* y = nullptr;
  Index y_pixel_stride = 0;
};

/// A stage: its kernel loaded, and what all its launches have in common made once. A launch starts
/// while the stream's previous kernel drains: that one is waited for before x and bias are read and
/// y is written, but not before w is read.
class FirstLaunch {
 public:
  using Run = FirstRun;

  /// On the current device. Throws Error.
  FirstLaunch(const Stage& stage, const FirstLayout& layout);
  ~FirstLaunch();

  /// Later runs read w: as first_weights packs it, of the output's type on the device, 16-byte
  /// aligned. Throws Error. Not during a run.
  void use(const void* w);

  /// Enqueues one launch. No allocation, no synchronisation, capturable. Returns an empty string,
  /// or what went wrong. From any thread.
  std::string run(const FirstRun& run, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<Ready> ready_;
};

}  // namespace convoy::cuda::sm90
