// Kernel `spike_chain`: spiking layers that hand each other bits, computed layer by layer over
// blocks of images small enough that everything between the layers stays in a core's caches.
#pragma once

#include <memory>
#include <vector>

#include "core/kernel.hpp"
#include "core/size.hpp"
#include "cpu/spike/spike_conv.hpp"
#include "cpu/spike/spike_events.hpp"
#include "cpu/spike/spike_first.hpp"
#include "cpu/spike/spike_linear.hpp"

namespace convoy::cpu {

/// How the spikes of a chain lie between its stages; follows from the stages alone.
class SpikePlan {
 public:
  explicit SpikePlan(const Chain& chain);

  std::size_t size() const { return stages_.size(); }
  const Stage& stage(std::size_t i) const { return stages_[i]; }
  /// Whether stage 0 is a SpikeFirst, which reads u8 images; else the chain reads spikes as f32.
  bool reads_images() const { return stages_.front().dtype == DType::u8; }
  bool linear(std::size_t i) const;
  /// The last stage is a mean over the steps.
  bool mean() const { return mean_; }
  Index steps() const { return steps_; }
  /// Of the spikes that stage i reads; i = size() are those that the last stage writes. Unused by a
  /// SpikeFirst and behind a mean.
  const SpikeLayout& layout(std::size_t i) const { return layouts_[i]; }

  /// Bytes that one thread needs; "too large" where they do not fit.
  Size scratch_bytes() const;
  /// Where its parts begin.
  struct Scratch {
    std::vector<std::size_t> bits;  // of layout i
    std::size_t images = 0, floats = 0, mean = 0;
  };
  const Scratch& scratch() const { return scratch_; }

  static constexpr Index block = 32;  // images that a thread takes at once

 private:
  void lay_out_scratch();

  std::vector<Stage> stages_;
  bool mean_;
  Index steps_;
  std::vector<SpikeLayout> layouts_;
  Scratch scratch_;
  Size bytes_;
};

/// The tables of every layer: what the weights, biases and pixel values of a chain become.
class SpikeTables final : public PackedWeights {
 public:
  struct Layer {  // one of them
    std::unique_ptr<SpikeFirst> first;
    std::unique_ptr<SpikeConv> conv;
    std::unique_ptr<SpikeLinear> linear;
    std::unique_ptr<SpikeEvents> events;
  };
  /// One element of `all` a stage. Throws Error where the first layer's sums may overflow.
  SpikeTables(const SpikePlan& plan, std::span<const Parameters> all);
  const Layer& layer(std::size_t i) const { return layers_[i]; }

 private:
  std::vector<Layer> layers_;
};

/// Adds each reason why the chain can't run here beyond `served_by_spikes`.
void refuse_spike_chain(const Chain& chain, Reasons& why);

}  // namespace convoy::cpu
