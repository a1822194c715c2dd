// What the ladder's kernels are launched with.
#pragma once

#include <cuda_fp16.h>

#include "convoy/stage.hpp"
#include "cuda/activate.cuh"
#include "math/index_map.hpp"
#include "teaching/ladder/ladder.hpp"

namespace convoy::cuda::teaching {

/// The implicit GEMM: m = N*P*Q output pixels by k filters, over R*S*C products each.
struct LadderParams {
  const __half* x;    // NHWC
  const __half* w;    // [K up to 128][R][S][C up to 32]
  const float* bias;  // [K] or null
  __half* y;          // of kernels that do not fuse: where conv + bias goes
  __half *pre, *act;  // second outputs, dense; null: not wanted
  __half* matrix;     // im2col's result, where there is one: [m up to 16][R*S*channels]
  Index x_image, x_row, x_pixel, y_image, y_row, y_pixel;  // strides in elements
  math::ConvAxis<int> rows, columns;
  math::ConvPixels<int> in, out;  // the pixel of a row m, to read x and to write y
  int m, k, c, r, s;
  int channels;  // c, up to a multiple of 32
  bool wide_y;   // outputs lie so that eight neighbouring channels are one store
  DeviceActivation activation;

  /// Products of an output, with those that the packing adds.
  CONVOY_HD int depth() const { return r * s * channels; }
};

}  // namespace convoy::cuda::teaching
