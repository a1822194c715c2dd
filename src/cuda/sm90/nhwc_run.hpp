// What a launch of an NHWC stage reads and writes.
#pragma once

#include "core/kernel.hpp"

namespace convoy::cuda::sm90 {

/// Device pointers. x [n,H,W,C] and y [n,P',Q',K] of the stage's type, with pixel strides
/// (elements) of at least C and K, on the bytes that the family wants; bias fp32 [K] or null.
struct NhwcRun {
  Index n = 0;  // images, at most the stage's n
  const void* x = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  Index x_pixel_stride = 0, y_pixel_stride = 0;

  NhwcRun() = default;
  explicit NhwcRun(const RunArgs& args)
      : n(args.n),
        x(args.x),
        bias(args.bias),
        y(args.y),
        x_pixel_stride(args.x_stride.w),
        y_pixel_stride(args.y_stride.w) {}
};

}  // namespace convoy::cuda::sm90
