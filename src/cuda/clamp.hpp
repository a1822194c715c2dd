// Activations as GPU kernels compute them.
#pragma once

#include <limits>

#include "convoy/stage.hpp"

namespace convoy::cuda {

/// Every activation but neurons: min(max(v < 0 ? slope*v : v, low), high), NaN passes.
struct Clamp {
  float slope, low, high;
};
inline Clamp clamp_of(const Activation& act) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  switch (act.kind) {
    case Activation::Kind::relu:
      return {1.0f, 0.0f, infinity};
    case Activation::Kind::relu6:
      return {1.0f, 0.0f, 6.0f};
    case Activation::Kind::clip:
      return {1.0f, act.a, act.b};
    case Activation::Kind::leaky:
      return {act.a, -infinity, infinity};
    default:
      return {1.0f, -infinity, infinity};
  }
}

}  // namespace convoy::cuda
