// What a loaded network holds. network_build.cpp fills it, network.cpp runs it.
#pragma once

#include "convoy/network.hpp"
#include "core/buffer.hpp"
#include "core/gpu.hpp"
#include "core/process.hpp"
#include "network/load.hpp"
#include "network/spike_chain.hpp"

namespace convoy {

struct Network::Impl {
  /// One layer as a plan.
  struct Planned {
    std::unique_ptr<Plan> plan;
    TensorView x, y;  // shapes of the plan's operands, without data
    Tensor bias;
    Index fold = 1;  // steps that the plan sees as further images, where it has no neuron
  };

  /// One step of a run: a plan for one layer, two plans and the launch that does both, or a chain
  /// of layers.
  struct Segment {
    std::size_t first = 0, count = 1;  // of layers that have weights
    std::vector<Planned> plans;
    std::unique_ptr<gpu::Pair> pair;
    std::unique_ptr<network::SpikeChain> chain;
    bool timed_out = false;   // output differs from step to step
    Index output_values = 0;  // of one image and step
  };

  NetworkText text;
  NetworkOptions options;
  std::vector<float> values;                   // x' of pixel values
  std::vector<std::size_t> stages;             // layers that have weights
  std::vector<network::LayerWeights> weights;  // of all layers
  std::vector<Segment> segments;
  std::vector<LayerReport> reports;
  std::unique_ptr<Threads> threads;
  Index classes = 0, parameters = 0, input_values = 0;
  mutable Buffer<float> input, logits;
  // Bytes: what layers hand each other, on the device; the images there; the last layer's output on
  // the host.
  mutable Tensor ping, pong, device_input, output;
  mutable Claim busy;

  Impl(network::Model model, const NetworkOptions& options_);
  /// Throws Error also where memory runs out.
  static std::unique_ptr<Impl> make(const std::string& folder, const NetworkOptions& options);

  const NetworkLayer& layer(std::size_t i) const { return text.layers[stages[i]]; }
  const Stage& stage(std::size_t i) const { return layer(i).stage; }
  const network::LayerWeights& weights_of(std::size_t i) const { return weights[stages[i]]; }
  bool after_flatten(std::size_t i) const {
    return stages[i] > 0 && text.layers[stages[i] - 1].flatten;
  }
  bool linear(std::size_t i) const {
    for (std::size_t j = 0; j < stages[i]; ++j)
      if (text.layers[j].flatten) return true;
    return false;
  }
  bool last(std::size_t i) const { return i + 1 == stages.size(); }
  bool spikes_reach(std::size_t i) const { return i > 0 && stage(i - 1).act.is_neuron(); }
  const float* bias_of(std::size_t i) const {
    return weights_of(i).bias.empty() ? nullptr : weights_of(i).bias.data();
  }

  /// The first layer as the kernel for u8 images sees it.
  Stage image_stage() const {
    Stage s = stage(0);
    s.dtype = DType::u8;
    s.hold = true;
    return s;
  }
  bool takes_images(std::size_t i) const {
    return i == 0 && text.dtype == DType::u8 && !linear(0) &&
           cpu::SpikeFirst::refusals(image_stage(), weights_of(0).w.data(), bias_of(0),
                                     values.data())
               .empty();
  }
  bool takes_spikes(std::size_t i) const {
    if (!spikes_reach(i)) return false;
    if (!linear(i)) return cpu::SpikeConv::refusals(stage(i)).empty();
    return cpu::SpikeLinear::refusals(stage(i)).empty() && (stage(i).act.is_neuron() || last(i));
  }

  bool on_gpu() const { return options.device.kind == DeviceKind::cuda; }
  bool uses_chains() const {
    return options.spike_kernels && !on_gpu() && text.layer_type() == DType::f32;
  }

  void build();
  void report(std::size_t i, const std::string& kernel);
  Planned make_plan(std::size_t i, bool timed);
  Segment make_plans(std::size_t i, bool timed);
  Segment make_chain(std::size_t first, std::size_t end);
  cpu::SpikeLayout layout_between(std::size_t i, bool increments) const;
  void make_buffers();

  /// A network that is one chain from images to means takes any number of images at once.
  bool one_chain() const {
    return segments.size() == 1 && segments[0].chain && !segments[0].timed_out &&
           text.dtype == DType::u8 && takes_images_built;
  }
  bool takes_images_built = false;

  std::string check(const TensorView& images, const TensorView& out,
                    const TensorView& labels) const;
  std::string check_memory(const TensorView& images, const TensorView& out,
                           const TensorView& labels) const;
  Status run_plan(const Planned& planned, Index n, void* x, void* y) const noexcept;
  Status run_segment(const Segment& segment, Index n, const std::uint8_t* pixels, void* x, void* y,
                     double* seconds) const;
  void* on_device(Index n, const void* input) const;
  const void* on_host(Index count, const void* data) const;
  Status run_batch(Index n, const TensorView& images, Index first, float* mean,
                   double* seconds) const;
  Status run(const TensorView& images, const TensorView& out, const TensorView& labels,
             double* seconds) const;
  const void* dense_input(Index n, const TensorView& images, Index first) const;
};

/// The mean or std of a channel: there may be none, one for all, or one each.
inline float of_channel(const std::vector<float>& values, Index c, float none) {
  return values.empty() ? none : values[values.size() == 1 ? 0 : static_cast<std::size_t>(c)];
}

}  // namespace convoy
