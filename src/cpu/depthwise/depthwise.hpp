// What the two halves of the kernel `depthwise` share: depthwise.cpp decides who computes which
// rows, depthwise_simd.cpp computes pixels of a row.
#pragma once

#include "convoy/stage.hpp"
#include "cpu/shared/epilogue.hpp"
#include "cpu/shared/pixel_rows.hpp"

namespace convoy::cpu::depthwise_loops {

inline constexpr int max_pixels = static_cast<int>(max_row_pixels);

/// Neighbouring pixels of one output row, all channels. Taps outside the image are not in it.
struct PixelArgs {
  const float* x = nullptr;  // first tap of the first pixel
  Index tap_rows = 0, tap_columns = 0;
  Index row = 0, column = 0;  // floats from a tap to the next: input strides times dilation
  Index pixel = 0;            // floats from a pixel's input to the next pixel's
  const float* w = nullptr;   // first tap's weights, [R,S,padded C]
  Index w_row = 0, w_column = 0;
  const float* bias = nullptr;  // [padded C]
  Epilogue epilogue;
  float* y = nullptr;
  Index y_pixel = 0;
  Index channels = 0;
};
using PixelLoop = void (*)(const PixelArgs&);

struct Loops {
  Index lanes = 0;
  /// [pixels - 1]: any taps.
  PixelLoop any[max_pixels] = {};
  /// The same for three and for five taps a row, stride 1 and 2, dilation 1: each input is loaded
  /// once a row.
  PixelLoop row[2][2][max_pixels] = {};
};
const Loops& loops();

}  // namespace convoy::cpu::depthwise_loops
