// Kernel `spike_conv`: a convolution of spikes, its neuron and a 2x2 pool, from bits to bits.
#pragma once

#include <string>
#include <vector>

#include "cpu/spike/spike_bits.hpp"

namespace convoy::cpu {

/// Eight input channels are one byte, and a byte indexes a table of the sums of the weights that
/// its bits select: R*S*C/8 table rows are added for a pixel and 16 filters, instead of R*S*C
/// multiply-adds a filter. fp32; the order of summation is fixed: tap row, tap column, byte.
class SpikeConv {
 public:
  /// Adds each reason why this layer can't run a stage beyond `served_by_spikes`.
  static void refuse(const Stage& stage, Reasons& why);
  /// w [K,R,S,C], bias [K] or null. `in` is the stage's input with its padding as border; `out` is
  /// the pooled output, bordered as the next layer wants it.
  SpikeConv(const Stage& stage, const float* w, const float* bias, const SpikeLayout& in,
            const SpikeLayout& out);

  /// Computes stage.t steps of n images; membranes start at 0. Allocates nothing; re-entrant.
  void run(Index n, const SpikeBlock& in, const SpikeBlock& out) const;

  struct Params;  // what the inner loops see

 private:
  Stage stage_;
  SpikeLayout in_, out_;
  Neuron neuron_;
  Index out_h_ = 0, out_w_ = 0;
  int group_bits_ = 8;
  std::vector<std::int32_t> tap_offset_;
  Buffer<float> table_;  // [K/16][tap][byte value, or low then high half][16]
  Buffer<float> bias_;   // [K/16][16]; -inf in lanes beyond K, which thus never fire
};

}  // namespace convoy::cpu
