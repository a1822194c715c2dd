#pragma once

#include "convoy/stage.hpp"

namespace convoy::math {

/// a / b, rounded up. For a ≥ 0, b > 0.
constexpr Index ceil_div(Index a, Index b) {
  return (a + b - 1) / b;
}

/// a up to a multiple of b.
constexpr Index round_up(Index a, Index b) {
  return ceil_div(a, b) * b;
}

}  // namespace convoy::math
