// Kernel `spike_events`: a convolution or a linear layer of spikes as sums of the weights of the
// inputs that fired, its neuron and a 2x2 pool, from bits to bits or to mean outputs.
#pragma once

#include "core/size.hpp"
#include "cpu/spike/spike_bits.hpp"

namespace convoy::cpu {

/// Where the tables of spike_conv and spike_linear would outgrow the caches: they hold four to
/// sixteen times the weights. Here nothing but the weights is read, a slice of them at a time that
/// stays in an L1: those of 64 input channels of a tap and 64 filters. For each output pixel the
/// sums of these filters are in registers while the bits of the 64 channels are walked.
///
/// Inputs fire in several steps, so that their weights would be added again and again. Of four
/// steps (the last group may have fewer) each pattern of steps has a sum of its own, of the inputs
/// that fire in these steps and in no other; a step's sum is that of the patterns which it is in.
///
/// fp32; the order of summation is fixed: within a pattern tap row, tap column, channel, those that
/// fired; then patterns as numbers whose bit i is step i.
class SpikeEvents {
 public:
  /// Whether a layer that spike_conv or spike_linear serves is better off here: a function of its
  /// weights' shape alone, as the bits depend on it.
  static bool pays(const Stage& stage);

  /// w [K,R,S,C], where a linear layer's C counts the bits of a borderless `in`, unused ones
  /// included; bias [K] or null. `out` is the pooled output; without a neuron it is not looked at.
  SpikeEvents(const Stage& stage, Index steps, const float* w, const float* bias,
              const SpikeLayout& in, const SpikeLayout& out);

  /// What a thread needs to run any number of images, in floats.
  static Size scratch_floats(const Stage& stage, Index steps);

  /// With a neuron: all steps of n images; membranes start at 0. Allocates nothing; re-entrant.
  void run(Index n, const SpikeBlock& in, const SpikeBlock& out, float* scratch) const;
  /// Without, a linear layer: mean over the steps of w*x + bias, [n,K] dense.
  void run_mean(Index n, const SpikeBlock& in, float* mean, float* scratch) const;

  struct Params;  // what the inner loops see
  /// Weights of up to 64 neighbouring bits of an input pixel.
  struct Slice {
    Index at = 0;            // its bits, in bytes from the output's first input pixel
    std::uint64_t bits = 0;  // those that are its channels'
    Index rows = 0;          // so many of the lowest bits
  };

 private:
  Params params(Index n, const SpikeBlock& in, float* scratch) const;

  SpikeLayout in_, out_;
  Neuron neuron_;
  Index steps_, k_, pool_;
  Index tile_rows_ = 0, tile_columns_ = 0;
  Index out_h_ = 0, out_w_ = 0;
  Index in_row_ = 0, in_column_ = 0;  // bytes from an output pixel's inputs to its neighbour's
  std::vector<Slice> slices_;
  Index slice_rows_ = 0;  // of all slices
  Buffer<float> w_;       // [K/64][slice][row][64, fewer in the last: a multiple of 16]
  Buffer<float> bias_;    // [K rounded up to 16]; -inf beyond K, where nothing fires then
};

}  // namespace convoy::cpu
