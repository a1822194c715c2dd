// What the two halves of the kernel `first` share: first.cpp decides who computes which rows,
// first_simd.cpp computes a row.
#pragma once

#include "convoy/stage.hpp"
#include "cpu/shared/epilogue.hpp"

namespace convoy::cpu::first_loops {

/// A row of results for one vector of filters, from packed rows of one channel.
struct RowArgs {
  const float* x = nullptr;     // first tap of the first pixel
  Index row_pitch = 0;          // floats
  Index r = 0, s = 0;           // filter height and width; s is 3, 5 or 7
  const float* w = nullptr;     // [R][S][lanes]
  const float* bias = nullptr;  // [lanes]
  Epilogue epilogue;
  bool pool = false;  // the maxima of 2x2 windows, which cover two rows of pixels
  Index results = 0;  // in a row
  float* y = nullptr;
  Index y_pixel = 0;
  Index valid = 0;  // filters to store
};

/// Filters of a block on an instruction set of so many lanes.
constexpr int row_lanes(int lanes) {
  return lanes < 8 ? lanes : 8;
}

struct Loops {
  Index lanes = 0;  // filters of a block
  void (*row)(const RowArgs& args) = nullptr;
  /// a·b + c, rounded as in `row`.
  float (*multiply_add)(float a, float b, float c) = nullptr;
};
const Loops& loops();

}  // namespace convoy::cpu::first_loops
