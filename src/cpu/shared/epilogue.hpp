// What follows a stage's sums of products: bias, activation, max-pool, one NaN. Vectors apply it
// with epilogue-inl.hpp.
#pragma once

#include <cstdint>
#include <limits>

#include "convoy/stage.hpp"
#include "math/activation.hpp"
#include "math/nan.hpp"

namespace convoy::cpu {

/// An activation as vectors compute it: a form, whose formula is in epilogue-inl.hpp. One form for
/// many activations: a branch for each would cost the register tiles around it their registers.
struct VectorActivation {
  enum class Form : std::uint8_t { clamp, leaky };
  Form form = Form::clamp;
  float lo = -std::numeric_limits<float>::infinity(), hi = std::numeric_limits<float>::infinity();
  float slope = 1;

  VectorActivation() = default;  // none
  /// A neuron changes no sum: it has a state.
  explicit VectorActivation(const Activation& act) {
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
        form = Form::leaky;
        slope = act.slope();
        break;
      case Activation::Kind::none:
      case Activation::Kind::if_:
      case Activation::Kind::lif:
        break;
    }
  }
};

struct Epilogue {
  Activation act;
  VectorActivation on_vectors;
  /// Bias and activation may follow the maximum of a window: they do not decrease.
  bool pool_first = true;

  Epilogue() = default;  // no activation
  explicit Epilogue(const Activation& act_)
      : act(act_), on_vectors(act_), pool_first(math::may_pool_first(act_)) {}

  /// Of one sum: for results that are made again one by one.
  float finish(float sum, float bias) const {
    return math::one_nan(math::activate(act, sum + bias));
  }
};

}  // namespace convoy::cpu
