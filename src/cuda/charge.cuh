// A neuron's charge, with the same bits in every kernel. (Spike and reset: math/activation.hpp.)
#pragma once

#include "cuda/charge.hpp"
#include "math/activation.hpp"

namespace convoy::cuda {

/// A quotient by tau with one rounding, as `/` has it, by three multiplications. (Below the normal
/// numbers its last bit may differ.)
__device__ __forceinline__ float divided(float x, float tau, float by_tau) {
  const float q = __fmul_rn(x, by_tau);
  const float corrected = fmaf(fmaf(-q, tau, x), by_tau, q);
  return fabsf(q) < INFINITY ? corrected : q;
}

/// math::charge. Written so that no product and sum become one operation, but where the product is
/// by a power of two and has no rounding. (Below the normal numbers it may have one.)
template <Charge By>
__device__ __forceinline__ float charged(const DeviceNeuron& neuron, float v, float x) {
  if constexpr (By == Charge::add) return __fadd_rn(v, x);
  const float to = __fadd_rn(x, -v);
  if constexpr (By == Charge::scale) return fmaf(to, neuron.by_tau, v);
  return __fadd_rn(v, divided(to, neuron.tau, neuron.by_tau));
}

/// Calls `body.operator()<By>()` with how the stage charges.
template <class Body>
__device__ __forceinline__ void with_charge(Charge charge, Body body) {
  if (charge == Charge::add)
    body.template operator()<Charge::add>();
  else if (charge == Charge::scale)
    body.template operator()<Charge::scale>();
  else
    body.template operator()<Charge::divide>();
}

}  // namespace convoy::cuda
