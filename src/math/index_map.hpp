// Index maps of a convolution as an implicit GEMM: from a product (m, k) to the output pixel (n, p,
// q), the tap (r, s, c) and the input position (h, w) behind them, and back. Host and device.
//
// gemm_m = N·P·Q counts output pixels, gemm_k = R·S·C/groups the products of one output. `Int` is
// what positions are counted in: where a stage's sizes are bounded, 32 bits serve.
#pragma once

#include "convoy/stage.hpp"
#include "math/host_device.hpp"

namespace convoy::math {

/// One axis: which position of the input a tap of an output reads.
template <class Int>
struct ConvAxis {
  Int size = 0;  // of the input
  Int stride = 1, pad = 0, dil = 1;

  /// May lie outside the input: then it is padding, and reads 0.
  CONVOY_HD Int at(Int output, Int tap) const { return output * stride - pad + tap * dil; }
  CONVOY_HD bool inside(Int position) const { return position >= 0 && position < size; }
  /// The output that reads `position` with this tap, of `outputs`; -1: none does.
  CONVOY_HD Int output_of(Int position, Int tap, Int outputs) const {
    const Int from = position + pad - tap * dil;
    return from >= 0 && from % stride == 0 && from / stride < outputs ? from / stride : -1;
  }
};

template <class Int = Index>
ConvAxis<Int> conv_rows(const Stage& stage) {
  const auto i = [](Index v) { return static_cast<Int>(v); };
  return {i(stage.h), i(stage.stride.h), i(stage.pad.top), i(stage.dil.h)};
}
template <class Int = Index>
ConvAxis<Int> conv_columns(const Stage& stage) {
  const auto i = [](Index v) { return static_cast<Int>(v); };
  return {i(stage.w), i(stage.stride.w), i(stage.pad.left), i(stage.dil.w)};
}

/// An output pixel before the pool: a row of the implicit GEMM.
template <class Int>
struct ConvPixel {
  Int n = 0, p = 0, q = 0;
  bool operator==(const ConvPixel&) const = default;
};
/// Rows of the implicit GEMM, numbered image by image and row by row.
template <class Int>
struct ConvPixels {
  Int p = 1, q = 1;
  CONVOY_HD ConvPixel<Int> at(Int m) const { return {m / q / p, m / q % p, m % q}; }
  CONVOY_HD Int number(const ConvPixel<Int>& pixel) const {
    return (pixel.n * p + pixel.p) * q + pixel.q;
  }
};

/// A product of an output: c counts from its group's first channel.
template <class Int>
struct ConvTap {
  Int r = 0, s = 0, c = 0;
  bool operator==(const ConvTap&) const = default;
};
/// Products of an output, numbered in the order r, s, c: as a filter [R,S,C/groups] lies in memory.
template <class Int>
struct ConvTaps {
  Int s = 1, c = 1;
  CONVOY_HD ConvTap<Int> at(Int k) const { return {k / c / s, k / c % s, k % c}; }
  CONVOY_HD Int number(const ConvTap<Int>& tap) const { return (tap.r * s + tap.s) * c + tap.c; }
};

}  // namespace convoy::math
