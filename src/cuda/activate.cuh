// Activations as GPU kernels compute them, with the same bits in every kernel. A new one
// (docs/contribute/adding-an-activation.md) has its formula in math/activation.hpp, where it also
// says whether a pool or a rounding may come before it, and its line in device_activation; and, if
// it is no clamp, a form: its name, its formula in `formed`, a branch in `with_form`. Nothing else
// on the GPU knows which activations there are: kernels take them from PostOps (post_ops.cuh).
//
// Kernels of one arithmetic round, activate and pool in different orders. What makes that harmless:
// every step keeps the order of values, where -0 lies below +0 and NaN, of which there is one,
// above all; and no sum is -0.
#pragma once

#include <limits>

#include "convoy/error.hpp"
#include "convoy/stage.hpp"
#include "cuda/ptx/sync.cuh"

namespace convoy::cuda {

/// What comes before the clamp.
enum class Form : int { identity, leaky };

/// The form's value, clamped: min(max(v, low), high). NaN passes.
struct DeviceActivation {
  float slope;  // below 0; 1: the identity
  float low, high;
};

/// Throws Error for a neuron, whose output is no function of one sum.
inline DeviceActivation device_activation(const Activation& act) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  switch (act.kind) {
    case Activation::Kind::none:
      return {1.0F, -infinity, infinity};
    case Activation::Kind::relu:
      return {1.0F, 0.0F, infinity};
    case Activation::Kind::relu6:
      return {1.0F, 0.0F, 6.0F};
    case Activation::Kind::clip:
      return {1.0F, act.lo(), act.hi()};
    case Activation::Kind::leaky:
      return {act.slope(), -infinity, infinity};
    case Activation::Kind::if_:
    case Activation::Kind::lif:
      break;
  }
  throw Error(
      "a neuron was given to a kernel that knows activations only; its refusals should say so");
}

template <Form F>
__device__ __forceinline__ float formed(const DeviceActivation& act, float v) {
  static_assert(F == Form::identity || F == Form::leaky, "a form needs its formula here");
  if constexpr (F == Form::leaky) v = v < 0.0f ? v * act.slope : v;
  return v;
}

/// The slope says which form it is: a field of its own costs `first` a register that it does not
/// have.
__device__ __forceinline__ bool is_identity(const DeviceActivation& act) {
  return act.slope == 1.0f;
}

/// Calls `body` with the form as its template argument.
template <class Body>
__device__ __forceinline__ void with_form(const DeviceActivation& act, Body body) {
  if (is_identity(act))
    body.template operator()<Form::identity>();
  else
    body.template operator()<Form::leaky>();
}

__device__ __forceinline__ float clamped(const DeviceActivation& act, float v) {
  return ptx::min_nan(ptx::max_nan(v, act.low), act.high);
}

__device__ __forceinline__ float activate(const DeviceActivation& act, float v) {
  with_form(act, [&]<Form F>() { v = formed<F>(act, v); });
  return clamped(act, v);
}

/// What to add to a sum for its bias: never -0, so that sums that are 0 of either sign, which
/// padding and the order of products decide, become +0. For PostOps::addend, and for the ladder,
/// whose steps add by themselves.
__device__ __forceinline__ float positive_zero(float bias) {
  return bias + 0.0f;
}

}  // namespace convoy::cuda
