// A run of spiking layers that hand each other bits: computed layer by layer over blocks of images
// small enough that everything between the layers stays in a core's caches.
#pragma once

#include <memory>
#include <vector>

#include "core/threads.hpp"
#include "cpu/spike_conv.hpp"
#include "cpu/spike_first.hpp"
#include "cpu/spike_linear.hpp"

namespace convoy::network {

/// Where a chain reads: u8 images [n,H,W,C] (its first layer is a SpikeFirst) or spikes as f32,
/// [steps][total][H][W][C].
struct ChainSource {
  const std::uint8_t* images = nullptr;
  const float* spikes = nullptr;
};

/// Where it writes; null: not wanted. The mean over the steps [n,classes] and its arg-max [n] when
/// its last layer is linear without a neuron, else spikes [steps][n][H][W][C].
struct ChainSink {
  float* mean = nullptr;
  std::int32_t* labels = nullptr;
  float* spikes = nullptr;
};

class SpikeChain {
 public:
  struct Layer {
    std::unique_ptr<cpu::SpikeFirst> first;
    std::unique_ptr<cpu::SpikeConv> conv;
    std::unique_ptr<cpu::SpikeLinear> linear;
    bool mean = false;  // a linear layer without a neuron: the last one
    Index k = 0;
    cpu::SpikeLayout output;  // of bits; unused by a mean
  };

  /// `input` is the bordered layout of the spikes that the first layer reads; unused by a
  /// SpikeFirst.
  SpikeChain(std::vector<Layer> layers, const cpu::SpikeLayout& input, Index image_values,
             Index steps, int threads);

  /// Runs n images. `seconds`, if not null, gets the time of each layer added, summed over threads.
  void run(Threads& threads, Index n, const ChainSource& source, const ChainSink& sink,
           double* seconds) const;

  /// Runs n images on one thread and gives every layer's output, [steps][n][H][W][C] f32 (a mean is
  /// [n][K]), to outputs[i].
  void trace(Index n, const ChainSource& source, float* const* outputs) const;

  Index size() const { return static_cast<Index>(layers_.size()); }

 private:
  struct Slot {
    std::vector<Buffer<std::uint8_t>> bits;  // of the input, then of each layer's output
    Buffer<std::byte> images;
    Buffer<float> floats, mean;
    Buffer<double> seconds;
  };
  void run_block(Slot& slot, Index first, Index count, Index total, const ChainSource& source,
                 const ChainSink& sink, double* seconds, float* const* outputs) const;
  Slot make_slot() const;
  cpu::SpikeBlock block_of(const Slot& slot, std::size_t boundary) const;

  std::vector<Layer> layers_;
  cpu::SpikeLayout input_;
  Index image_values_, steps_, block_ = 32;
  mutable std::vector<Slot> slots_;  // one a thread
};

}  // namespace convoy::network
