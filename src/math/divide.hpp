#pragma once

#include "convoy/stage.hpp"

namespace convoy::math {

/// a / b, rounded up. For a ≥ 0, b > 0.
constexpr Index ceil_div(Index a, Index b) {
  return (a + b - 1) / b;
}

}  // namespace convoy::math
