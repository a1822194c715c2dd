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

template <bool leaky, int pixels, class Access>
HWY_INLINE void some_channels(const NeuronArgs& a, Index at, float* spikes, const Access& access) {
  const D d;
  const V threshold = hn::Set(d, a.neuron.threshold), tau = hn::Set(d, a.neuron.tau);
  const Index pixel[4] = {0, a.channels, a.row_pitch, a.row_pitch + a.channels};
  V x[pixels], v[pixels];
#pragma GCC unroll 4
  for (int i = 0; i < pixels; ++i) {
    x[i] = access.load(a.sums + at + pixel[i]);
    v[i] = a.before ? access.load(a.before + at + pixel[i]) : hn::Zero(d);
  }
  for (Index t = 0; t < a.steps; ++t, spikes += a.spike_step) {
    V most = hn::Zero(d);
#pragma GCC unroll 4
    for (int i = 0; i < pixels; ++i) {
      if constexpr (leaky)
        v[i] = hn::Add(v[i], hn::Div(hn::Sub(x[i], v[i]), tau));
      else
        v[i] = hn::Add(v[i], x[i]);
      v[i] = one_nan(d, v[i]);
      const auto fired = hn::Ge(v[i], threshold);
      most = hn::IfThenElse(fired, hn::Set(d, 1.0F), most);
      const V reset = a.neuron.soft ? hn::Sub(v[i], threshold) : hn::Zero(d);
      v[i] = hn::IfThenElse(fired, reset, v[i]);
    }
    access.store(most, spikes);
  }
  if (!a.after) return;
#pragma GCC unroll 4
  for (int i = 0; i < pixels; ++i) access.store(v[i], a.after + at + pixel[i]);
}

template <bool leaky, int pixels>
void steps_of(const NeuronArgs& given) {
  const NeuronArgs a = given;  // a copy, which the floats written can't alias
  for (Index output = 0; output < a.outputs; ++output) {
    const Index first = output * a.channels * (pixels == 4 ? 2 : 1);
    float* spikes = a.spikes + output * a.spike_pitch;
    Index c = 0;
    for (; c + lanes <= a.channels; c += lanes)
      some_channels<leaky, pixels>(a, first + c, spikes + c, Whole<D>());
    // What lies behind the last channels is another pixel's, and another thread's to write.
    if (c < a.channels)
      some_channels<leaky, pixels>(a, first + c, spikes + c, Some<D>{a.channels - c});
  }
}

void steps_of_any(const NeuronArgs& a) {
  if (a.windows)
    a.neuron.leaky ? steps_of<true, 4>(a) : steps_of<false, 4>(a);
  else
    a.neuron.leaky ? steps_of<true, 1>(a) : steps_of<false, 1>(a);
}
}  // namespace

Steps steps_here() {
  return &steps_of_any;
}
}  // namespace convoy::cpu::neuron_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::neuron_loops {
HWY_EXPORT(steps_here);
Steps steps() {
  return HWY_DYNAMIC_DISPATCH(steps_here)();
}
}  // namespace convoy::cpu::neuron_loops
#endif
