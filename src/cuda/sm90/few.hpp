// The few family: so few filters that all their taps together are at most 64 rows of a matrix, as
// in the last layer of a decoder. Host side: what fits, the geometry, the launch.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "convoy/stage.hpp"
#include "cuda/device.hpp"
#include "cuda/tensor_map.hpp"

namespace convoy::cuda::sm90 {

/// A tile of the convolution's output and the box of input pixels it needs.
struct FewLayout {
  int out_w = 0, out_h = 0;  // conv pixels of a tile
  int box_w = 0, box_h = 0;
  int chunks = 0;  // of 64 input channels
  int slots = 0, slot_bytes = 0, shared_bytes = 0;
  int tiles_x = 0, tiles_y = 0, grid = 0;
};

/// Every reason why the family can't run a legal stage; empty: it can.
std::vector<std::string> few_refusals(const Stage& stage, const DeviceFacts& device);
FewLayout few_layout(const Stage& stage, const DeviceFacts& device);
TensorMapArgs few_x_map(const Stage& stage, const FewLayout& layout, Index pixel_stride);
TensorMapArgs few_w_map(const Stage& stage);

/// Loads the kernel on the current device. To be called once before few_launch; returns an empty
/// string, or what went wrong.
std::string few_ready(const Stage& stage);

/// Device pointers, x and w 16-byte aligned: x [n,H,W,C], w [K,R,S,C], y [n,P',Q',K] of the stage's
/// type, NHWC, with pixel strides in elements. Enqueues one launch; returns an empty string, or
/// what went wrong.
struct FewRun {
  Index n = 0;
  const void* x = nullptr;
  const void* w = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  Index x_pixel_stride = 0, y_pixel_stride = 0;
  bool overlap_previous = false;
};
std::string few_launch(const Stage& stage, const FewLayout& layout, const FewRun& run,
                       cudaStream_t stream) noexcept;

}  // namespace convoy::cuda::sm90
