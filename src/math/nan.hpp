// The one NaN that results have.
#pragma once

#include "math/half.hpp"

namespace convoy::math {

/// NaN becomes the NaN with all bits set. Which operand's bits an operation hands on depends on the
/// instruction that a compiler chose; with this, results have the same bits whatever loop made
/// them.
CONVOY_HD float one_nan(float v) {
  return v == v ? v : float_of(0xffffffffU);
}

}  // namespace convoy::math
