// What the two halves of the kernel `grouped` share: grouped.cpp decides which channels a vector of
// filters reads, grouped_simd.cpp computes pixels of a row.
#pragma once

#include <cstdint>

#include "convoy/stage.hpp"
#include "cpu/shared/epilogue.hpp"
#include "cpu/shared/pixel_rows.hpp"

namespace convoy::cpu::grouped_loops {

/// Neighbouring pixels of one output row, one vector of filters. Taps outside the image are not in
/// it. The filters' groups have neighbouring channels, at most two vectors of them.
struct PixelArgs {
  const float* x = nullptr;  // first tap of the first pixel, first of the channels
  Index channels = 0;        // that may be read
  Index tap_rows = 0, tap_columns = 0;
  Index row = 0, column = 0;  // floats from a tap to the next: input strides times dilation
  Index pixel = 0;            // floats from a pixel's input to the next pixel's
  const float* w = nullptr;   // first tap's weights, [R,S,inputs,lanes]
  Index w_row = 0, w_column = 0;
  Index inputs = 0;                       // channels of a group
  const std::int32_t* channel = nullptr;  // [inputs,lanes]: which of the channels a lane takes
  const float* bias = nullptr;            // [lanes]
  Epilogue epilogue;
  float* y = nullptr;
  Index y_pixel = 0;
  Index filters = 0;  // to store, at most a vector
};
using PixelLoop = void (*)(const PixelArgs&);

struct Loops {
  Index lanes = 0;
  /// [pixels - 1]: whole vectors of channels may be read, one or two of them.
  PixelLoop one[max_row_pixels] = {}, two[max_row_pixels] = {};
  /// The same where they may not: the tensor may end behind the last channel.
  PixelLoop some_of_one[max_row_pixels] = {}, some_of_two[max_row_pixels] = {};
};
const Loops& loops();

}  // namespace convoy::cpu::grouped_loops
