// Kernel `spike_linear`: a linear layer of spikes, from bits to bits or to mean outputs.
#pragma once

#include "cpu/spike/spike_bits.hpp"

namespace convoy::cpu {

/// Four input spikes index a table of the sums of their weights; groups without a spike are left
/// out. fp32; the order of summation is fixed by the position of a group alone.
class SpikeLinear {
 public:
  /// Adds each reason why this layer can't run a stage on a 1x1 image, beyond `served_by_spikes`.
  static void refuse(const Stage& stage, Reasons& why);
  /// w [K, 8*bytes of `in`]: a column for each bit of a borderless `in`, in its order; columns of
  /// unused bits are ignored. bias [K] or null.
  SpikeLinear(const Stage& stage, Index steps, const float* w, const float* bias,
              const SpikeLayout& in);

  /// What a thread needs to run any number of images, in floats.
  static Index scratch_floats(const Stage& stage);

  /// With a neuron: `steps` steps of n images to out, [K bits] an image.
  void run(Index n, const SpikeBlock& in, const SpikeBlock& out, float* scratch) const;
  /// Without: mean over the steps of w*x + bias, [n,K] dense.
  void run_mean(Index n, const SpikeBlock& in, float* mean, float* scratch) const;

  struct Params;  // what the inner loops see

 private:
  Params params(const SpikeBlock& in, float* scratch) const;
  Index steps_, k_, k_padded_, in_bytes_;
  bool increments_;
  Neuron neuron_;
  Buffer<float> table_;  // [32 bytes of input][low, high half][byte][value][K padded]
  Buffer<float> bias_;   // [K padded]; -inf beyond K
};

}  // namespace convoy::cpu
