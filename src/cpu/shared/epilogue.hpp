// What kernels do to sums while these are in registers: bias, a clamp, one NaN. Vectors do it with
// epilogue-inl.hpp. Everything else waits until results are stored (post_ops.hpp): its constants
// would cost the register tiles their registers.
#pragma once

#include <limits>

#include "convoy/stage.hpp"
#include "math/nan.hpp"

namespace convoy::cpu {

/// The activation as a clamp: min(max(v, lo), hi). A clamp does not decrease, so that bias and
/// clamp may follow the maximum of a window.
struct Epilogue {
  float lo = -std::numeric_limits<float>::infinity(), hi = std::numeric_limits<float>::infinity();
  bool whole = true;  // the clamp is all of the activation; else PostOps applies that

  Epilogue() = default;  // no activation
  /// A neuron changes no sum: it has a state.
  explicit Epilogue(const Activation& act) {
    switch (act.kind) {
      case Activation::Kind::relu:
        lo = 0;
        break;
      case Activation::Kind::relu6:
        lo = 0;
        hi = 6;
        break;
      case Activation::Kind::clip:
        lo = act.lo();
        hi = act.hi();
        break;
      case Activation::Kind::leaky:
        whole = false;
        break;
      case Activation::Kind::none:
      case Activation::Kind::if_:
      case Activation::Kind::lif:
        break;
    }
  }

  /// Of one sum: for results that are made again one by one.
  float finish(float sum, float bias) const {
    const float v = sum + bias, low = v < lo ? lo : v;
    return math::one_nan(low > hi ? hi : low);
  }
};

}  // namespace convoy::cpu
