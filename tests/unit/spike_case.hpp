// What the tests of the kernels for spikes share: drawn weights and spikes, and the reference's.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "core/machine.hpp"
#include "core/threads.hpp"
#include "cpu/spike/spike_bits.hpp"
#include "reference/reference.hpp"

namespace convoy::cpu {

class Draw {
 public:
  // The machine is asked for so that CONVOY_ISA counts here too.
  explicit Draw(unsigned seed) : engine_(seed) { cpu_machine(); }
  Index index(Index low, Index high) {
    return std::uniform_int_distribution<Index>(low, high)(engine_);
  }
  bool coin() { return index(0, 1) == 1; }
  std::vector<float> dyadic(Index count, int range) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(index(-range, range)) / 32;
    return values;
  }
  std::vector<float> normal(Index count, float scale) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::normal_distribution<float> distribution(0, scale);
    for (float& value : values) value = distribution(engine_);
    return values;
  }
  std::vector<float> spikes(Index count, double rate) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::bernoulli_distribution fires(rate);
    for (float& value : values) value = fires(engine_) ? 1.0F : 0.0F;
    return values;
  }

 private:
  std::mt19937 engine_;
};

inline std::vector<double> expected_spikes(const Stage& stage, std::vector<float>& x,
                                           std::vector<float>& w, std::vector<float>& bias) {
  static Threads threads(2);
  Operands operands;
  operands.x = TensorView(x.data(), DType::f32, x_shape(stage));
  if (stage.bias) operands.bias = TensorView::of(bias.data(), {stage.k});
  const reference::Oracle oracle(stage,
                                 TensorView::of(w.data(), {stage.k, stage.r, stage.s, stage.c}),
                                 operands, reference::Sum::exact);
  return oracle.all(threads).y;
}

/// Every reason why a kind of layer can't run a stage.
template <class Layer>
Reasons refusals_of(const Stage& stage) {
  Reasons why = unserved(stage, served_by_spikes, DeviceKind::cpu);
  Layer::refuse(stage, why);
  return why;
}

struct Bits {
  std::vector<std::uint8_t> data;
  SpikeBlock block;
  /// Filled, so that a test sees bytes that a kernel forgot or should have left alone.
  Bits(const SpikeLayout& layout, Index steps, Index n, std::uint8_t fill)
      : data(static_cast<std::size_t>(steps * n * layout.image_bytes()), fill) {
    data.resize(data.size() + spike_slack, 0);
    block = {data.data(), n * layout.image_bytes()};
  }
};

inline void expect_equal(const std::vector<double>& expected, const SpikeLayout& layout,
                         Index steps, Index n, const SpikeBlock& block, const Stage& stage) {
  std::vector<float> ours(expected.size());
  unpack_spikes(layout, steps, n, block, ours.data(), static_cast<Index>(expected.size()) / steps);
  Index different = 0;
  for (std::size_t i = 0; i < ours.size(); ++i)
    different += ours[i] != static_cast<float>(expected[i]);
  EXPECT_EQ(different, 0) << to_text(stage) << ": of " << ours.size();
}

}  // namespace convoy::cpu
