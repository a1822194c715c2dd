// Loading a network: which layers run as plans and which as chains of spike kernels.
#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "core/file.hpp"
#include "core/machine.hpp"
#include "core/printable.hpp"
#include "core/size.hpp"
#include "network/network_impl.hpp"
#include "plan/fusion.hpp"
#include "plan/select.hpp"

namespace convoy {
namespace {

using network::LayerWeights;
using network::SpikeChain;

// A stage's n ends there.
constexpr Index most_images = (Index{1} << 31) - 1;

/// x' of every pixel value and channel, [C][256], by PyTorch's own operations in fp32.
std::vector<float> normalised_values(const NetworkText& text) {
  std::vector<float> values;
  for (Index c = 0; c < text.c; ++c) {
    const float mean = of_channel(text.mean, c, 0.0F), std = of_channel(text.std, c, 1.0F);
    for (int u = 0; u < 256; ++u) values.push_back((static_cast<float>(u) / 255.0F - mean) / std);
  }
  return values;
}

/// Columns for every bit of a layout, from the columns [H,W,C] of a linear layer.
std::vector<float> columns_of_bits(const std::vector<float>& w, Index k,
                                   const cpu::SpikeLayout& layout) {
  const Index pixels = layout.h * layout.w, bits = layout.bytes() * 8;
  std::vector<float> result(static_cast<std::size_t>(k * pixels * bits), 0.0F);
  for (Index row = 0; row < k * pixels; ++row)
    std::copy_n(w.begin() + row * layout.c, layout.c, result.begin() + row * bits);
  return result;
}

}  // namespace

namespace {

void check_options(const NetworkOptions& options) {
  if (options.batch < 1 || options.batch > most_images)
    throw Error(fmt::format("batch {}: expected 1 to {} images. 256 is the default, and enough.",
                            options.batch, most_images));
  PlanOptions on_device;
  on_device.device = options.device;
  on_device.threads = options.threads;
  machine_for(on_device);  // throws where that is none
}

network::Model read_model(const std::string& folder) {
  const std::string file = folder + "/network.txt";
  const auto bytes = read_file(file, std::size_t{1} << 20);  // as parse_network takes
  network::Model model{parse_network(text_of(bytes), file), {}};
  model.weights = network::load_weights(model.text, folder);
  return model;
}

// What `make` returns. `name`: of the network, for the message where memory runs out.
template <class Make>
auto with_memory(const std::string& name, const Make& make) {
  const auto no_memory = [&] {
    return Error(
        fmt::format("no memory for the network {}. Its weights are kept twice, as numbers and "
                    "packed, while it is loaded: use a smaller network or a smaller batch.",
                    printable(name)));
  };
  try {
    return make();
  } catch (const std::bad_alloc&) {
    throw no_memory();
  } catch (const std::length_error&) {
    throw no_memory();
  }
}

}  // namespace

Network::Impl::Impl(network::Model model, const NetworkOptions& options_)
    : text(std::move(model.text)), options(options_), weights(std::move(model.weights)) {
  values = normalised_values(text);
  input_values = (Size(text.h) * text.w * text.c).value();
  threads = std::make_unique<Threads>(cpu_machine(options.threads).threads);
  for (std::size_t i = 0; i < text.layers.size(); ++i)
    if (!text.layers[i].flatten) stages.push_back(i);
  const Shapes last = shapes_of(stage(stages.size() - 1));
  classes = last.out_h * last.out_w * stage(stages.size() - 1).k;
  build();
  weights.clear();
  make_buffers();
}

std::unique_ptr<Network::Impl> Network::Impl::make(const std::string& folder,
                                                   const NetworkOptions& options) {
  check_options(options);  // before any file is read
  return with_memory(folder, [&] { return std::make_unique<Impl>(read_model(folder), options); });
}

Network network::assemble(Model model, const NetworkOptions& options) {
  check_options(options);
  return with_memory("in memory", [&] {
    return Network(std::make_unique<Network::Impl>(std::move(model), options));
  });
}

void Network::Impl::build() {
  bool timed = false;
  for (std::size_t i = 0; i < stages.size();) {
    std::size_t end = i;
    if (uses_chains()) {
      if (takes_images(i) || takes_spikes(i)) ++end;
      while (end > i && end < stages.size() && takes_spikes(end)) ++end;
    }
    Segment segment = end > i ? make_chain(i, end) : make_plans(i, timed);
    const Shapes shapes = shapes_of(stage(i + segment.count - 1));
    segment.output_values = shapes.out_h * shapes.out_w * stage(i + segment.count - 1).k;
    for (std::size_t j = i; j < i + segment.count; ++j) timed |= stage(j).act.is_neuron();
    segment.timed_out = timed && !(segment.chain && !stage(i + segment.count - 1).act.is_neuron());
    i += segment.count;
    segments.push_back(std::move(segment));
  }
}

void Network::Impl::report(std::size_t i, const std::string& kernel) {
  LayerReport r;
  r.name = layer(i).name;
  r.stage = to_text(stage(i));
  r.kernel = kernel;
  r.parameters = static_cast<Index>(weights_of(i).w.size() + weights_of(i).bias.size());
  parameters += r.parameters;
  bool varies = false;
  for (std::size_t j = 0; j < i; ++j) varies |= stage(j).act.is_neuron();
  r.macs = shapes_of(stage(i)).macs * (varies ? text.steps : 1);
  reports.push_back(std::move(r));
}

Network::Impl::Planned Network::Impl::make_plan(std::size_t i, bool timed) {
  Planned planned;
  Stage s = stage(i);
  planned.fold = timed && !s.act.is_neuron() ? text.steps : 1;
  const Size images = Size(options.batch) * planned.fold;
  if (!images.fits(most_images))
    throw Error(
        fmt::format("batch {}: {} takes the {} steps of each image as images, expected at most "
                    "{} in all. Use a smaller batch.",
                    options.batch, layer(i).name, planned.fold, most_images));
  s.n = images.value();
  PlanOptions plan_options;
  plan_options.device = options.device;
  plan_options.threads = threads->count();
  const LayerWeights& w = weights_of(i);
  planned.plan = std::make_unique<Plan>(
      s, TensorView::of(w.w.data(), {s.k, s.r, s.s, s.c / s.groups}), plan_options);
  planned.x = TensorView(nullptr, s.dtype, x_shape(s), options.device);
  planned.y = TensorView(nullptr, s.dtype, y_shape(s), options.device);
  if (!w.bias.empty()) {
    planned.bias = Tensor(DType::f32, {s.k}, options.device);
    copy(TensorView::of(w.bias.data(), {s.k}), planned.bias);
  }
  return planned;
}

/// Layer i, and the next one with it where one launch does both. The plans of such a pair stay, for
/// `trace` to show what lies between.
Network::Impl::Segment Network::Impl::make_plans(std::size_t i, bool timed) {
  Segment segment;
  segment.first = i;
  segment.plans.push_back(make_plan(i, timed));
  report(i, segment.plans[0].plan->kernel());
  if (!on_gpu() || last(i)) return segment;
  PlanOptions on_device;
  on_device.device = options.device;
  const Machine machine = machine_for(on_device);
  Stage first = segment.plans[0].plan->stage(), second = stage(i + 1);
  second.n = first.n;
  Fusion fusion;
  if (after_flatten(i + 1))
    fusion.why = "two launches: a flatten lies between";
  else
    fusion = judge_fusion(first, second, machine);
  reports.back().fusion = fusion.why;
  if (!fusion.fused) return segment;
  segment.plans.push_back(make_plan(i + 1, timed));
  segment.pair = gpu::prepare_pair(first, second, machine);
  segment.pair->set_weights(weights_of(i).w.data(), weights_of(i + 1).w.data());
  segment.count = 2;
  reports.back().kernel = "pair";
  report(i + 1, "pair");
  return segment;
}

/// The layout of what layer i reads from layer i-1, with the border that it wants.
cpu::SpikeLayout Network::Impl::layout_between(std::size_t i, bool increments) const {
  const Shapes before = shapes_of(stage(i - 1));
  return {before.out_h, before.out_w, stage(i - 1).k, linear(i) ? Padding(0) : stage(i).pad,
          increments};
}

Network::Impl::Segment Network::Impl::make_chain(std::size_t first, std::size_t end) {
  Segment segment;
  segment.first = first;
  segment.count = end - first;
  std::vector<SpikeChain::Layer> layers;
  const cpu::SpikeLayout source =
      takes_images(first) ? cpu::SpikeLayout{} : layout_between(first, false);
  cpu::SpikeLayout in = source;
  for (std::size_t i = first; i < end; ++i) {
    const Stage& s = stage(i);
    const LayerWeights& w = weights_of(i);
    SpikeChain::Layer made;
    made.k = s.k;
    made.mean = !s.act.is_neuron();
    const bool images = takes_images(i);
    if (!made.mean) {
      const bool increments = images && text.steps == 2;
      const Shapes shapes = shapes_of(s);
      made.output = i + 1 < end ? layout_between(i + 1, increments)
                                : cpu::SpikeLayout{shapes.out_h, shapes.out_w, s.k, {}, increments};
    }
    if (images) {
      made.first = std::make_unique<cpu::SpikeFirst>(image_stage(), w.w.data(), bias_of(i),
                                                     values.data(), made.output);
      report(i, "spike_first");
    } else if (linear(i)) {
      const auto columns = columns_of_bits(w.w, s.k, in);
      made.linear =
          std::make_unique<cpu::SpikeLinear>(s, text.steps, columns.data(), bias_of(i), in);
      report(i, "spike_linear");
    } else {
      made.conv = std::make_unique<cpu::SpikeConv>(s, w.w.data(), bias_of(i), in, made.output);
      report(i, "spike_conv");
    }
    in = made.output;
    layers.push_back(std::move(made));
  }
  segment.chain = std::make_unique<SpikeChain>(std::move(layers), source, input_values, text.steps,
                                               threads->count());
  return segment;
}

void Network::Impl::make_buffers() {
  takes_images_built = !reports.empty() && reports[0].kernel == "spike_first";
  if (one_chain()) return;
  Size largest;  // values of one image between two segments
  for (const Segment& segment : segments)
    largest = std::max(largest, Size(segment.output_values) * (segment.timed_out ? text.steps : 1));
  for (const Segment& segment : segments) {  // `trace` shows what lies inside a pair
    if (segment.pair)
      largest = std::max(largest, Size(segment.plans[0].plan->shapes().y_elements / options.batch));
  }
  const Size values_in = takes_images_built ? 0 : Size(input_values) * options.batch;
  const Size values_out = Size(classes) * options.batch;
  const auto type_bytes = static_cast<Index>(size_of(text.layer_type()));
  const Size between = largest * options.batch * type_bytes;
  const Size images = Size(input_values) * options.batch * type_bytes;
  const Size all = (values_in + values_out) * static_cast<Index>(sizeof(float)) + between * 2 +
                   (on_gpu() ? images + between : Size(0));
  try {
    if (!all.fits()) throw std::bad_alloc();
    input = Buffer<float>(static_cast<std::size_t>(values_in.value()));
    logits = Buffer<float>(static_cast<std::size_t>(values_out.value()));
  } catch (const std::bad_alloc&) {
    throw Error(
        fmt::format("batch {}: no memory for the {} bytes that so many images take between the "
                    "layers. Use a smaller batch.",
                    options.batch, all.fits() ? fmt::format("{}", all.value()) : "more than 2^60"));
  }
  const auto memory = [](Size bytes, Device device) {
    return Tensor(DType::u8, {bytes.value()}, device);
  };
  ping = memory(between, options.device);
  pong = memory(between, options.device);
  if (on_gpu()) {
    device_input = memory(images, options.device);
    output = memory(between, {});
  }
}

}  // namespace convoy
