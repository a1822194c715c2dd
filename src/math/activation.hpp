// Activations and neurons, written once for host and device. fp32 in, fp32 out.
#pragma once

#include "convoy/stage.hpp"
#include "math/host_device.hpp"

namespace convoy::math {

/// Element-wise activation. NaN passes through, as in PyTorch: the comparisons are written so that
/// a NaN fails them. A product that is 0 is +0, so that zeros of both signs never meet in a pool,
/// where their order would show.
inline float activate(const Activation& act, float v) {
  switch (act.kind) {
    case Activation::Kind::relu:
      return v < 0.0F ? 0.0F : v;
    case Activation::Kind::relu6:
      return v < 0.0F ? 0.0F : (v > 6.0F ? 6.0F : v);
    case Activation::Kind::clip: {
      const float low = v < act.lo() ? act.lo() : v;
      return low > act.hi() ? act.hi() : low;
    }
    case Activation::Kind::leaky:
      return v < 0.0F ? act.slope() * v + 0.0F : v;
    case Activation::Kind::none:
    case Activation::Kind::if_:
    case Activation::Kind::lif:
      break;
  }
  return v;
}

/// Whether a maximum over a window may be taken before bias and activation, as it changes nothing:
/// the activation does not decrease, and makes no NaN of what is none. (leaky(0) makes one of -inf,
/// which a larger value in the window would hide.) Neurons never: see docs/trust/numbers.md.
inline bool may_pool_first(const Activation& act) {
  switch (act.kind) {
    case Activation::Kind::none:
    case Activation::Kind::relu:
    case Activation::Kind::relu6:
    case Activation::Kind::clip:
      return true;
    case Activation::Kind::leaky:
      return act.slope() > 0;
    case Activation::Kind::if_:
    case Activation::Kind::lif:
      return false;
  }
  return false;
}

/// Whether conv + bias may be rounded to the type of y before the activation, which is then rounded
/// again: it changes nothing where values only move to a bound or stay.
inline bool may_round_first(const Activation& act) {
  switch (act.kind) {
    case Activation::Kind::none:
    case Activation::Kind::relu:
    case Activation::Kind::relu6:
    case Activation::Kind::clip:
      return true;
    case Activation::Kind::leaky:
    case Activation::Kind::if_:
    case Activation::Kind::lif:
      return false;
  }
  return false;
}

/// At most how many times larger an error is behind the activation, at least 1. (A neuron's output
/// is a step: no number bounds it, and 1 is given.)
inline float steepest(const Activation& act) {
  switch (act.kind) {
    case Activation::Kind::leaky: {
      const float slope = act.slope() < 0 ? -act.slope() : act.slope();
      return slope > 1 ? slope : 1;
    }
    case Activation::Kind::none:
    case Activation::Kind::relu:
    case Activation::Kind::relu6:
    case Activation::Kind::clip:
    case Activation::Kind::if_:
    case Activation::Kind::lif:
      return 1;
  }
  return 1;
}

/// Charge: the membrane before it may fire. IF: v + x. LIF (decay_input, v_reset 0): v + (x -
/// v)/tau.
CONVOY_HD float charge(Activation::Kind kind, float tau, float v, float x) {
  return kind == Activation::Kind::lif ? v + (x - v) / tau : v + x;
}
/// 1 where the charged membrane reaches the threshold.
CONVOY_HD float fire(float v, float th) {
  return v >= th ? 1.0F : 0.0F;
}
/// The membrane after the spike: hard reset to 0, soft reset by the threshold.
CONVOY_HD float reset(float v, float th, float spike, bool soft) {
  return spike != 0.0F ? (soft ? v - th : 0.0F) : v;
}

/// Max-pool's running maximum as PyTorch keeps it: the first maximum stays, a NaN wins, and of
/// several NaN the last one gives the index.
CONVOY_HD bool beats(float candidate, float best) {
  return candidate > best || candidate != candidate;
}

}  // namespace convoy::math
