// The data that a stage is timed on.
#pragma once

#include "convoy/plan.hpp"

namespace convoy::bench {

/// Host tensors of a stage: normal inputs, for zeros and ReLU'd data run faster on some machines
/// and are not what users have; outputs to write to. A million values are drawn and repeated.
struct Problem {
  Tensor x, w, bias, scale, shift, y, pre, act, idx;
  Operands operands;

  explicit Problem(const Stage& stage);
};

}  // namespace convoy::bench
