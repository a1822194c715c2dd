// What the two halves of the kernel `few_filters` share: few_filters.cpp decides who computes which
// rows, few_filters_simd.cpp computes pixels of a row.
#pragma once

#include "convoy/stage.hpp"
#include "cpu/shared/epilogue.hpp"

namespace convoy::cpu::few_filters_loops {

inline constexpr Index max_filters = 8, max_pixels = 8;

/// Neighbouring pixels of one output row or of two, all filters, some of the channels.
struct PixelArgs {
  /// Where a tap's inputs begin: tap t's of pixel i of a row at x[t] + i * pixel, of the second of
  /// two rows by `row` further; or, where some lie outside the image, at x[t * pixels + i].
  const float* const* x = nullptr;
  Index pixel = 0, row = 0;
  const float* const* w = nullptr;  // of each tap: [vectors of channels][filters][lanes]
  Index taps = 0, channels = 0;
  float* sums = nullptr;           // [pixels][filters][lanes], between two parts of the channels
  bool first = true, last = true;  // of the parts
  float* y = nullptr;              // [pixels][filters], once the last part has been added
};
using PixelLoop = void (*)(const PixelArgs&);

/// Pixels of a tile: their sums fill the registers beside a step's weights and an input.
constexpr int pixels_of(int filters, int registers) {
  const int most = (registers < 32 ? 12 : 24) / filters;
  return most < static_cast<int>(max_pixels) ? most : static_cast<int>(max_pixels);
}

/// For one number of filters.
struct Loops {
  Index lanes = 0, pixels = 0;
  PixelLoop tile = nullptr;    // `pixels` pixels of a row, all of their taps inside the image
  PixelLoop rows = nullptr;    // likewise, half of them in each of two rows; of an even number
  PixelLoop border = nullptr;  // of either, x lists each pixel's
  PixelLoop one = nullptr;     // one pixel
  bool (*all_finite)(const float* y, Index count) = nullptr;
  /// y[i] = clamp(y[i] + bias[i % filters]); bias: [filters][lanes], repeating the filters' own.
  void (*finish)(float* y, Index count, const float* bias, const Epilogue& epilogue) = nullptr;
};
/// filters: 1 to max_filters.
const Loops& loops(Index filters);

}  // namespace convoy::cpu::few_filters_loops
