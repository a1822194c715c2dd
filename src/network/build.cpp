// Making a network: its layers cut into steps, each bound to a kernel, and the memory between them.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>

#include "core/failure.hpp"
#include "core/printable.hpp"
#include "math/half.hpp"
#include "network/flow.hpp"
#include "network/parameter_views.hpp"
#include "network/program.hpp"
#include "plan/segments.hpp"

namespace convoy {
namespace {

// A stage's n ends there.
constexpr Index most_images = (Index{1} << 31) - 1;

Machine machine_of(const NetworkOptions& options) {
  PlanOptions plan;
  plan.device = options.device;
  plan.threads = options.threads;
  return machine_for(plan);
}

void check_options(const NetworkOptions& options) {
  if (options.batch < 1 || options.batch > most_images)
    throw Error(fmt::format("batch {}: expected 1 to {} images. Use 256, the default.",
                            options.batch, most_images));
  if (options.weights != DType::f32 && options.weights != DType::f16)
    throw Error(fmt::format("weights {}: expected f32 (unchanged) or f16 (rounded to f16).",
                            to_text(options.weights)));
  machine_of(options);  // throws where that is none
}

// The model as `options.weights` wants it.
network::Model rounded(network::Model model, const NetworkOptions& options) {
  if (options.weights == DType::f32) return model;
  if (model.text.layer_type() != DType::f32)
    throw Error(
        fmt::format("weights f16: the layers compute in {}, expected f32. Leave the option out.",
                    to_text(model.text.layer_type())));
  for (std::size_t i = 0; i < model.weights.size(); ++i)
    for (float& w : model.weights[i].w) {
      const float near = math::round_to(options.weights, w);
      if (!std::isfinite(near))
        throw Error(fmt::format("weights f16: {} has the weight {:g}, expected less than 65520.",
                                model.text.layers[i].name, w));
      w = near;
    }
  return model;
}

network::Model model_of(const NetworkText& text, const NetworkParameters& parameters) {
  network::Model model{network::completed(text), {}};
  network::ParameterViews views(parameters);
  model.weights = network::load_weights(model.text, views);
  return model;
}

// What `make` returns. `name`: of the network, for the message where memory runs out.
template <class Make>
auto with_memory(const std::string& name, const Make& make) {
  const auto no_memory = [&] {
    return NoMemory(
        fmt::format("no memory for the network {}. While it is loaded, its weights are in memory "
                    "twice, as numbers and packed. Use a smaller network or a smaller batch.",
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
    : Impl(model.text, options_,
           network::graph_of(model.text, std::move(model.weights), options_.batch)) {}

Network::Impl::Impl(NetworkText text_, const NetworkOptions& options_, network::Graph graph_)
    : text(std::move(text_)),
      options(options_),
      machine(machine_of(options)),
      graph(std::move(graph_)),
      conversion(text),
      pixels_of_values(conversion.values(), conversion.mean(), conversion.std()),
      threads(on_gpu() ? shared_threads(default_threads(), nullptr)
                       : shared_threads(machine.threads, options.caller_threads)),
      input_values((Size(text.h) * text.w * text.c).value()) {
  const Stage& end = graph.layers.back().stage;
  const Shapes shapes = shapes_of(end);
  classes = shapes.out_h * shapes.out_w * end.k;
  // Kernels that fold the pixels' values in take u8 images as they are, unless the weights forbid
  // it; everything else gets x'.
  bool folds = false;
  if (text.dtype == DType::u8 && options.spike_kernels) {
    try {
      const OwnedChain images = chain_of(0, row_from(0), true);
      const Kernel* first = cut(images, machine, plan_options()).front().kernel;
      folds = first && first->facts().folds;
      if (folds) build(true);
    } catch (const Error&) {  // of weights that such a kernel does not serve
      folds = false;
    }
  }
  if (!folds) build(false);
  // Where pixels are read as they are, images of other values need further layers: of_values.
  if (!folds)
    for (network::Layer& one : graph.layers) one.weights = {};
  lay_out_memory();
}

std::unique_ptr<Network::Impl> Network::Impl::make(const std::string& folder,
                                                   const NetworkOptions& options) {
  check_options(options);  // before any file is read
  return with_memory(folder, [&] {
    return std::make_unique<Impl>(rounded(network::read_model(folder), options), options);
  });
}

std::unique_ptr<Network::Impl> Network::Impl::make(const NetworkText& text,
                                                   const NetworkParameters& parameters,
                                                   const NetworkOptions& options) {
  check_options(options);
  return with_memory("in memory", [&] {
    return std::make_unique<Impl>(rounded(model_of(text, parameters), options), options);
  });
}

PlanOptions Network::Impl::plan_options() const {
  PlanOptions plan;
  plan.device = options.device;
  plan.threads = on_gpu() ? 0 : machine.threads;
  plan.caller_threads = options.caller_threads;
  return plan;
}

/// How many layers read each other in a row from `first` on.
std::size_t Network::Impl::row_from(std::size_t first) const {
  std::size_t count = 1;
  while (first + count < graph.layers.size() && graph.in_a_row(first, count + 1)) ++count;
  return count;
}

/// Layers that read each other in a row, as kernels see them.
OwnedChain Network::Impl::chain_of(std::size_t first, std::size_t count,
                                   bool images_as_they_are) const {
  OwnedChain chain;
  for (std::size_t i = first; i < first + count; ++i) chain.stages.push_back(layer(i).stage);
  chain.constants = options.spike_kernels;
  const std::vector<Index>& inputs = layer(first).inputs;
  if (inputs.front() != network::network_input) {
    chain.binary = std::all_of(inputs.begin(), inputs.end(), [&](Index one) {
      return layer(static_cast<std::size_t>(one)).stage.act.is_neuron();
    });
    chain.x_steps = graph.reads_timed(first) ? graph.steps : 1;
  } else if (images_as_they_are) {
    Stage& images = chain.stages.front();
    images.dtype = DType::u8;
    images.out = text.layer_type();
    images.hold = images.act.is_neuron();
  }
  const Stage& end = chain.stages.back();
  chain.mean = first + count == graph.layers.size() && layer(first + count - 1).timed &&
               !end.act.is_neuron();
  return chain;
}

/// x' of each pixel value, for each channel of the first stage: behind flatten for each pixel.
std::vector<float> Network::Impl::values_of_first() const {
  const std::vector<float>& given = conversion.values();
  std::vector<float> all;
  if (given.empty()) return all;
  for (Index c = 0; c < layer(0).stage.c; c += text.c)
    all.insert(all.end(), given.begin(), given.end());
  return all;
}

std::vector<Parameters> Network::Impl::parameters_of(const Step& step,
                                                     const std::vector<float>& values) const {
  std::vector<Parameters> all;
  for (std::size_t i = step.first; i < step.first + step.count; ++i) {
    const network::LayerWeights& w = layer(i).weights;
    all.push_back({.w = w.w.data(),
                   .bias = w.bias.empty() ? nullptr : w.bias.data(),
                   .values = values.empty() ? nullptr : values.data()});
  }
  return all;
}

/// The chain's layers from `first` on as one step, by the kernel of that name or the planner's
/// choice.
Network::Impl::Step Network::Impl::make_step(const OwnedChain& chain, std::size_t first,
                                             std::string_view kernel) const {
  Step step;
  step.first = first;
  step.count = chain.stages.size();
  const network::Layer& end = layer(first + step.count - 1);
  OwnedChain bound = chain;
  // A plan of one stage without a neuron knows no steps: to it they are further images.
  if (step.count == 1 && kernel.empty() && end.timed && !end.stage.act.is_neuron()) {
    step.fold = graph.steps;
    const Size images = Size(options.batch) * step.fold;
    if (!images.fits(most_images))
      throw Error(
          fmt::format("batch {}: {} computes the {} steps of each image as separate images, "
                      "expected at most {} of them in all. Use a smaller batch.",
                      options.batch, end.name, step.fold, most_images));
    bound.stages.front().n = images.value();
  }
  if (kernel.empty()) bound.constants = bound.binary = bound.mean = false, bound.x_steps = 1;
  PlanOptions plan = plan_options();
  plan.kernel = kernel;
  plan.owns_workspace = !on_gpu();  // there the steps share one, for which the network sees
  step.bound = std::make_unique<Bound>(bound, plan);
  step.bound->set(parameters_of(step, first == 0 ? values_of_first() : std::vector<float>()));
  step.mean = bound.mean;
  step.timed = end.timed && !step.mean;
  const Shapes shapes = shapes_of(end.stage);
  step.values = shapes.out_h * shapes.out_w * end.stage.k;
  for (std::size_t i = first; i < first + step.count; ++i) {
    const std::vector<float>& bias = layer(i).weights.bias;
    Tensor there;
    if (!bias.empty() && !step.bound->kernel().facts().folds) {
      there = Tensor(DType::f32, {static_cast<Index>(bias.size())}, options.device);
      copy_tensor(ConstTensorView::of(bias.data(), {static_cast<Index>(bias.size())}), there);
    }
    step.bias.push_back(std::move(there));
  }
  step.later.resize(step.count - 1);
  return step;
}

void Network::Impl::build(bool images_as_they_are) {
  steps.clear();
  reports.clear();
  parameters = 0;
  for (std::size_t first = 0; first < graph.layers.size();) {
    const std::size_t count = row_from(first);
    const OwnedChain row = chain_of(first, count, images_as_they_are);
    for (const Segment& segment : cut(row, machine, plan_options())) {
      const std::size_t at = first + segment.first;
      const Kernel* kernel = segment.kernel;
      const OwnedChain chain = chain_of(at, segment.count, images_as_they_are && kernel);
      Step step = make_step(chain, at, kernel ? kernel->name() : "");
      if (segment.count > 1 && kernel && !kernel->facts().keeps_inner)
        for (std::size_t i = 0; i < segment.count; ++i)
          step.apart.push_back(make_step(chain_of(at + i, 1, false), at + i, ""));
      report(step, segment.why);
      steps.push_back(std::move(step));
    }
    first += count;
  }
  reads_images =
      !conversion.needed() || (images_as_they_are && steps.front().bound->kernel().facts().folds);
  any_n = steps.size() == 1 && reads_images && last().mean && last().bound->kernel().facts().any_n;
  at_once = options.batch;
}

void Network::Impl::report(const Step& step, const std::string& why) {
  for (std::size_t i = step.first; i < step.first + step.count; ++i) {
    const network::Layer& one = layer(i);
    LayerReport r;
    r.name = one.name;
    r.kernel = step.bound->kernel().name();
    if (i == step.first) r.fusion = why;
    r.parameters = static_cast<Index>(one.weights.w.size() + one.weights.bias.size());
    parameters += r.parameters;
    Stage single = one.stage;
    single.n = 1;
    r.stage = to_text(single);
    r.macs = shapes_of(single).macs * (graph.reads_timed(i) ? graph.steps : 1);
    reports.push_back(std::move(r));
  }
}

/// The number of the tensor that a layer's output lies in; 0 of the input.
Index Network::Impl::tensor_of(Index number) const {
  if (number == network::network_input) return 0;
  for (std::size_t j = 0; j < steps.size(); ++j)
    if (static_cast<std::size_t>(number) < steps[j].first + steps[j].count)
      return static_cast<Index>(j) + 1;
  return static_cast<Index>(steps.size());
}

/// What step i reads, which lives until then: one tensor, or several that are put together in one
/// of its own.
void Network::Impl::find_input(std::size_t i, std::vector<network::Lifetime>& lives) {
  Step& step = steps[i];
  const network::Layer& first = layer(step.first);
  const auto now = static_cast<Index>(i);
  for (const Index input : first.inputs) {
    step.in = tensor_of(input);
    auto& source = lives[static_cast<std::size_t>(step.in)];
    source.last = std::max(source.last, now);
  }
  if (first.inputs.size() == 1) return;
  const Index pixels =
      first.stage.h * first.stage.w * (graph.reads_timed(step.first) ? graph.steps : 1);
  Index before = 0;
  for (const Index input : first.inputs) {
    const Index channels = layer(static_cast<std::size_t>(input)).stage.k;
    step.parts.push_back({tensor_of(input), channels, before, first.stage.c, pixels});
    before += channels;
  }
  step.in = static_cast<Index>(lives.size());
  lives.push_back(
      {Size(pixels) * first.stage.c * at_once * static_cast<Index>(size_of(text.layer_type())), now,
       now});
}

/// A tensor behind each step, the converted images before the first, inputs that are put together
/// from several, and on a GPU the largest of the steps' workspaces.
void Network::Impl::lay_out_memory() {
  const auto type = static_cast<Index>(size_of(text.layer_type()));
  std::vector<network::Lifetime> lives;
  lives.push_back({reads_images ? Size(0) : Size(input_values) * at_once * type, -1, 0});
  for (Step& step : steps) {
    const auto now = static_cast<Index>(lives.size()) - 1;
    step.out = now + 1;
    const Size output =
        Size(step.values) * steps_of(step) * at_once * (step.mean ? Index{sizeof(float)} : type);
    lives.push_back({output, now, now});
  }
  lives.back().last = static_cast<Index>(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) find_input(i, lives);
  std::size_t work = 0;
  if (on_gpu())
    for (const Step& step : steps) {
      work = std::max(work, step.bound->workspace_bytes());
      for (const Step& one : step.apart) work = std::max(work, one.bound->workspace_bytes());
    }
  if (!any_n) memory_plan = network::plan_memory(lives);
  const Size outputs = Size(classes) * at_once * 4;
  const Size all = memory_plan.bytes + outputs * 2 + static_cast<Index>(work);
  if (!all.fits())
    throw NoMemory(
        fmt::format("batch {}: no memory for the more than 2^60 bytes between the layers for this "
                    "number of images. Use a smaller batch.",
                    options.batch));
  const auto make = [&](Size bytes, Device device) {
    try {
      return Tensor(DType::u8, {bytes.value()}, device);
    } catch (const Error&) {
      throw NoMemory(
          fmt::format("batch {}: no memory for the {} bytes between the layers for this number of "
                      "images. Use a smaller batch.",
                      options.batch, all.value()));
    }
  };
  if (work > 0) workspace = make(static_cast<Index>(work), options.device);
  if (any_n) return;
  memory = make(memory_plan.bytes, options.device);
  if (!on_gpu()) return;
  device_outputs = make(outputs * 2, options.device);
  std::vector<float> tables = conversion.values();
  if (!conversion.of_pixels()) {
    tables = conversion.mean();
    tables.insert(tables.end(), conversion.std().begin(), conversion.std().end());
  }
  const auto count = static_cast<Index>(tables.size());
  device_tables = Tensor(DType::f32, {count}, options.device);
  copy_tensor(TensorView::of(tables.data(), {count}), device_tables);
}

}  // namespace convoy
