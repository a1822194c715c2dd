// The definition's index arithmetic: from a product (m, k) of the implicit GEMM to the output (n,
// p, q), the tap (r, s, c), the position (h, w) of x behind them, its address, and back. By
// math/index_map.hpp, which kernels use too.
#pragma once

#include <optional>
#include <string>

#include "convoy/stage.hpp"

namespace convoy::inspect {

/// An output of the convolution, before the pool; k is a channel of y.
struct OutputIndex {
  Index n = 0, p = 0, q = 0, k = 0;
  bool operator==(const OutputIndex&) const = default;
};
/// A product of an output. c counts from its group's first channel.
struct TapIndex {
  Index r = 0, s = 0, c = 0;
  bool operator==(const TapIndex&) const = default;
};

/// The element of x that a product reads; c counts all of x's channels. Outside the image it is
/// padding and reads 0.
struct InputElement {
  Index n = 0, h = 0, w = 0, c = 0;
  bool inside = false;
  Index byte = -1;  // from the begin of a dense x, in its layout; -1: padding
  int bytes = 0;    // of the element
  bool operator==(const InputElement&) const = default;
};

/// One product of the GEMM [N*P*Q, R*S*C/groups] x [R*S*C/groups, K].
struct Product {
  Index m = 0, k = 0;
  OutputIndex output;
  TapIndex tap;
  InputElement input;
  Index weight_byte = 0;  // of [K,R,S,C/groups], in elements of x's type
};

/// The product at (m, k) of filter `filter`. Throws Error for what the stage does not have.
Product product_at(const Stage& stage, Index m, Index k, Index filter);
/// The element of x that an output reads with a tap.
InputElement input_of(const Stage& stage, const OutputIndex& output, const TapIndex& tap);
/// Distance of an element from the begin of a dense x, in its layout: bytes.
Index x_byte(const Stage& stage, const InputElement& x);
/// Throws Error with what `what` is out of where it lies outside; nothing else checks.
void expect_output(const Stage& stage, const OutputIndex& output);

/// The way back: row and column of the GEMM.
Index gemm_row(const Stage& stage, const OutputIndex& output);
Index gemm_column(const Stage& stage, const TapIndex& tap);
/// The output pixel that reads position (h, w) with a tap (r, s); none: no output does.
std::optional<OutputIndex> output_that_reads(const Stage& stage, const InputElement& input,
                                             const TapIndex& tap, Index filter);

/// Distance of an element of dense y from its begin, bytes; what the pool makes of an output. None:
/// the pool takes no window of it.
std::optional<Index> y_byte(const Stage& stage, const OutputIndex& output, DType y);

}  // namespace convoy::inspect
