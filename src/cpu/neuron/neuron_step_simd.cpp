// The loop of neurons, compiled once for each instruction set. Vectors hold channels.
#include "cpu/neuron/neuron_step.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/neuron/neuron_step_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/shared/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::neuron_loops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::one_nan;
using cpu::HWY_NAMESPACE::Some;
using cpu::HWY_NAMESPACE::Whole;
constexpr int lanes = HWY_LANES(float);
using D = hn::FixedTag<float, lanes>;
using V = hn::Vec<D>;

template <bool leaky, class Access>
HWY_INLINE void some_channels(const NeuronArgs& a, Index at, float* spikes, const Access& access) {
  const D d;
  const V threshold = hn::Set(d, a.neuron.threshold);
  const V x = access.load(a.sums + at);
  V v = a.before ? access.load(a.before + at) : hn::Zero(d);
  if constexpr (leaky)
    v = hn::Add(v, hn::Div(hn::Sub(x, v), hn::Set(d, a.neuron.tau)));
  else
    v = hn::Add(v, x);
  v = one_nan(d, v);
  const auto fired = hn::Ge(v, threshold);
  access.store(hn::IfThenElseZero(fired, hn::Set(d, 1.0F)), spikes);
  if (!a.after) return;
  const V reset = a.neuron.soft ? hn::Sub(v, threshold) : hn::Zero(d);
  access.store(hn::IfThenElse(fired, reset, v), a.after + at);
}

template <bool leaky>
void step_of(const NeuronArgs& a) {
  for (Index pixel = 0; pixel < a.pixels; ++pixel) {
    const Index first = pixel * a.channels;
    float* spikes = a.spikes + pixel * a.spike_pitch;
    Index c = 0;
    for (; c + lanes <= a.channels; c += lanes)
      some_channels<leaky>(a, first + c, spikes + c, Whole<D>());
    // What lies behind the last channels is another pixel's, and another thread's to write.
    if (c < a.channels) some_channels<leaky>(a, first + c, spikes + c, Some<D>{a.channels - c});
  }
}

void step_of_any(const NeuronArgs& a) {
  if (a.neuron.leaky)
    step_of<true>(a);
  else
    step_of<false>(a);
}
}  // namespace

Step step_here() {
  return &step_of_any;
}
}  // namespace convoy::cpu::neuron_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::neuron_loops {
HWY_EXPORT(step_here);
Step step() {
  return HWY_DYNAMIC_DISPATCH(step_here)();
}
}  // namespace convoy::cpu::neuron_loops
#endif
