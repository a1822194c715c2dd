// Kernel `spike_first`: the first layer of a spiking network, from u8 images to bits.
#pragma once

#include "cpu/spike/spike_bits.hpp"

namespace convoy::cpu {

/// With the same image in every step, at most two steps and an integrate-and-fire neuron, a unit
/// fires by a threshold on its input alone: th in step 0, th/2 in step 1. So the convolution is
/// computed once, pooled, and compared.
///
/// It is computed in integers: u8 pixels by weights rounded to 16 bits, exact sums in int32. A
/// bound on the rounding of the weights decides nearly every spike; the few that it leaves open are
/// decided by a double-precision convolution with the weights and inputs as given. The spikes are
/// therefore those of exact arithmetic, on every machine.
class SpikeFirst {
 public:
  /// Adds each reason why this layer can't run a stage beyond `served_by_spikes`.
  static void refuse(const Stage& stage, Reasons& why);
  /// Adds each reason why it can't run a stage that is not refused with these weights.
  static void refuse_weights(const Stage& stage, const float* w, const float* bias,
                             const float* input, Reasons& why);
  /// The stage is u8 with hold; w [K,R,S,C]; bias [K] or null; input [C][256]: the value x' of each
  /// pixel value. `out` is the pooled output, bordered as the next layer wants it; with two steps
  /// it must say `increments`.
  SpikeFirst(const Stage& stage, const float* w, const float* bias, const float* input,
             const SpikeLayout& out);

  /// What a thread needs to run, in bytes.
  static Index scratch_bytes(const Stage& stage);
  /// n images, dense [n,H,W,C]. scratch is 64-byte aligned.
  void run(Index n, const std::uint8_t* images, const SpikeBlock& out, std::byte* scratch) const;

  struct Params;  // what the inner loops see

 private:
  /// Two taps that one multiply-add of 16-bit pairs takes; second may be -1.
  struct TapPair {
    Index first, second;
  };
  std::vector<TapPair> list_pairs();
  void pack(const std::vector<TapPair>& pairs);

  bool fires(const std::uint8_t* image, Index k, Index row, Index column, float threshold) const;
  static bool decide(const void* self, const std::uint8_t* image, Index k, Index row, Index column,
                     float threshold) {
    return static_cast<const SpikeFirst*>(self)->fires(image, k, row, column, threshold);
  }

  Stage stage_;
  SpikeLayout out_;
  Index out_h_ = 0, out_w_ = 0;
  std::vector<float> w_, bias_, input_;
  std::vector<float> threshold_;       // [steps]
  Buffer<std::int16_t> packed_;        // [K/8][tap pair][8][2]
  Buffer<std::int32_t> sure_, maybe_;  // [K/8][step][8]: fires above; does not fire up to
  std::vector<Index> down_, across_;   // where a tap pair lies, from the pixel, in pairs
};

}  // namespace convoy::cpu
