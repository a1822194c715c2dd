// The first family: layers with at most four input channels, where reading an image is cheap and
// writing the output is the cost. The launch.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "core/kernel.hpp"
#include "cuda/sm90/first_layout.hpp"
#include "cuda/tensor_map.hpp"

namespace convoy::cuda::sm90 {

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
