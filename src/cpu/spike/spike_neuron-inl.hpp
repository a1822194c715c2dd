// A neuron on vectors of fp32, for the kernels spike_conv and spike_linear. Once for each
// instruction set, behind <hwy/highway.h>.
#include "cpu/spike/spike_bits.hpp"

#if defined(CONVOY_CPU_SPIKE_NEURON_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOY_CPU_SPIKE_NEURON_INL
#undef CONVOY_CPU_SPIKE_NEURON_INL
#else
#define CONVOY_CPU_SPIKE_NEURON_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Float = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Float>;
constexpr int kLanes = HWY_LANES(float) < 16 ? HWY_LANES(float) : 16;

/// One step of a neuron: charges v by x, resets it and returns where it fired.
HWY_INLINE hn::Mask<Float> step(const Neuron& neuron, Vec x, Vec& v) {
  const Float d;
  const Vec threshold = hn::Set(d, neuron.threshold);
  const Vec charge = neuron.leaky ? hn::Div(hn::Sub(x, v), hn::Set(d, neuron.tau)) : x;
  v = hn::Add(v, charge);
  const auto fired = hn::Ge(v, threshold);
  v = neuron.soft ? hn::IfThenElse(fired, hn::Sub(v, threshold), v) : hn::IfThenZeroElse(fired, v);
  return fired;
}

/// Lane i as bit i.
HWY_INLINE unsigned bits_of(hn::Mask<Float> fired) {
  std::uint8_t part[8] = {};
  hn::StoreMaskBits(Float(), fired, part);
  return part[0] | static_cast<unsigned>(part[1]) << 8;
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
