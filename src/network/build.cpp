// Making a program: the graph through its passes, its layers cut into steps, each bound to a kernel
// or a pass.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/failure.hpp"
#include "core/printable.hpp"
#include "graph/passes.hpp"
#include "graph/stage_of.hpp"
#include "math/half.hpp"
#include "network/place.hpp"
#include "network/program.hpp"
#include "plan/parts.hpp"
#include "plan/segments.hpp"
#include "plan/shared_weights.hpp"

namespace convoy::network {
namespace {

using graph::no_id;
using graph::NodeId;
using graph::ValueId;

// Of the memory between the layers, if a caller names no batch: on a CPU, and as a share of a
// GPU's.
constexpr Index cpu_budget = Index{256} << 20, share_of_gpu = 8;
constexpr Index usual_batch = 256;

Machine machine_of(const NetworkOptions& options) {
  PlanOptions plan;
  plan.device = options.device;
  plan.threads = options.threads;
  return machine_for(plan);
}

/// The weights as `options.weights` wants them.
void round_weights(graph::Graph& graph, DType type) {
  if (type == DType::f32) return;
  for (const graph::Node& node : graph.nodes) {
    if (!node.as<graph::Convolution>() && !node.as<graph::Linear>()) continue;
    graph::Value& w = graph.values[node.in[1]];
    if (const DType computed = graph.input(node, 0).type; computed != DType::f32)
      throw Error(
          fmt::format("weights f16: the layers compute in {}, expected f32. Leave the option out.",
                      to_text(computed)));
    std::vector<float> rounded = *w.constant;
    for (float& number : rounded) {
      const float near = math::round_to(type, number);
      if (!std::isfinite(near))
        throw Error(fmt::format("weights f16: {} has the weight {:g}, expected less than 65520.",
                                printable(node.name), number));
      number = near;
    }
    w.constant = std::make_shared<const std::vector<float>>(std::move(rounded));
  }
}

class Builder {
 public:
  Builder(graph::Graph graph, const NetworkOptions& options) {
    program_.options = options;
    program_.machine = machine_of(options);
    program_.threads = program_.on_gpu()
                           ? shared_threads(default_threads(), nullptr)
                           : shared_threads(program_.machine.threads, options.caller_threads);
    graph = graph::order_columns(graph::fold_batchnorm(graph::without_dead(std::move(graph))));
    round_weights(graph, options.weights);
    program_.graph =
        graph::fuse(std::move(graph), [&](const Stage& stage) { return serves(stage); });
    for (NodeId i = 0; i < program_.graph.nodes.size(); ++i)
      if (program_.graph.nodes[i].as<graph::Fused>()) program_.layers.push_back(i);
    if (program_.layers.empty())
      throw Error("the network has no layer that a kernel runs, expected at least one");
    links_ = std::make_unique<graph::Links>(program_.graph);
    program_.at_once = images_at_once();
  }

  Program build() {
    // Kernels that fold the pixels' values in take u8 images as they are, unless the weights forbid
    // it; everything else gets x'.
    if (first_reads_pixels()) {
      try {
        const OwnedChain images = chain_of(0, row_from(0), true);
        const Kernel* first = cut(images, program_.machine, plan_options()).front().kernel;
        program_.reads_pixels = first && first->facts().folds;
        if (program_.reads_pixels) make_steps();
      } catch (const Error&) {  // of weights that such a kernel does not serve
        program_.reads_pixels = false;
      }
    }
    if (!program_.reads_pixels) make_steps();
    const auto* only = std::get_if<KernelStep>(&program_.steps.front());
    program_.any_n =
        program_.steps.size() == 1 && only && only->mean && only->bound->kernel().facts().any_n;
    place_values(program_);
    if (!program_.arena(program_.at_once).bytes.fits())
      throw NoMemory(
          fmt::format("batch {}: no memory for the more than 2^60 bytes between the layers for "
                      "this number of images. Use a smaller batch.",
                      program_.at_once));
    return std::move(program_);
  }

 private:
  const graph::Graph& graph() const { return program_.graph; }

  bool serves(const Stage& stage) const {
    const Chain chain(stage);
    const auto kernels = kernel_table();
    return std::any_of(kernels.rbegin(), kernels.rend(), [&](const Kernel* kernel) {
      return kernel->device() == program_.machine.device.kind && !kernel->facts().by_name_only &&
             !is_for_chains(*kernel) &&
             refusals_of_an_image(*kernel, chain, program_.machine).empty();
    });
  }

  /// The batch that the options name, or as many images as the budget has room for between any two
  /// layers.
  Index images_at_once() const {
    if (program_.options.batch > 0) return program_.options.batch;
    Size most(1);
    for (const graph::Node& node : graph().nodes)
      most = std::max(most, program_.image_bytes(node.out) + program_.image_bytes(node.in[0]));
    const Index budget = program_.on_gpu()
                             ? static_cast<Index>(program_.machine.memory_bytes) / share_of_gpu
                             : cpu_budget;
    return std::clamp<Index>(budget / most.value(), 1, usual_batch);
  }

  PlanOptions plan_options() const {
    PlanOptions plan;
    plan.device = program_.options.device;
    plan.threads = program_.on_gpu() ? 0 : program_.machine.threads;
    plan.caller_threads = program_.options.caller_threads;
    plan.owns_workspace = false;  // a context has one for each step
    return plan;
  }

  /// What turns the network's images into what layer 0 reads, if it alone reads that; else none.
  NodeId normalise_before_first() const {
    const ValueId x = program_.layer(0).in[0];
    const NodeId before = links_->producer[x];
    return before != no_id && graph().nodes[before].as<graph::Normalise>() &&
                   links_->only_user(graph(), x) == program_.layers[0] &&
                   links_->only_user(graph(), graph().nodes[before].in[0]) == before &&
                   graph().inputs.size() == 1
               ? before
               : no_id;
  }
  bool first_reads_pixels() const {
    return program_.options.spike_kernels && normalise_before_first() != no_id &&
           program_.value(graph().inputs[0]).type == DType::u8;
  }

  /// The layer before, if layer i reads what it alone is given.
  bool follows(std::size_t i) const {
    ValueId before = program_.layer(i - 1).out;
    NodeId user = links_->only_user(graph(), before);
    while (user != no_id && graph().nodes[user].as<graph::Flatten>()) {
      before = graph().nodes[user].out;
      user = links_->only_user(graph(), before);
    }
    return user == program_.layers[i];
  }
  /// How many layers read each other in a row from `first` on.
  std::size_t row_from(std::size_t first) const {
    std::size_t count = 1;
    while (first + count < program_.layers.size() && follows(first + count)) ++count;
    return count;
  }

  /// Whether the value holds 0 and 1 only.
  bool is_spikes(ValueId id) const {
    const NodeId producer = links_->producer[id];
    if (producer == no_id) return false;
    const graph::Node& node = graph().nodes[producer];
    if (const auto* fused = node.as<graph::Fused>()) return fused->stage.act.is_neuron();
    if (!node.as<graph::Concat>() && !node.as<graph::Slice>() && !node.as<graph::Flatten>())
      return false;
    return std::all_of(node.in.begin(), node.in.end(), [&](ValueId x) { return is_spikes(x); });
  }

  /// The mean over the steps of what layer i gives, if it is all that anybody wants of it.
  NodeId mean_behind(std::size_t i) const {
    const NodeId user = links_->only_user(graph(), program_.layer(i).out);
    return user != no_id && graph().nodes[user].as<graph::MeanOfSteps>() ? user : no_id;
  }

  /// Layers that read each other in a row, as kernels see them.
  OwnedChain chain_of(std::size_t first, std::size_t count, bool pixels) const {
    OwnedChain chain;
    for (std::size_t i = first; i < first + count; ++i) {
      chain.stages.push_back(program_.stage(i));
      chain.stages.back().n = program_.at_once;
    }
    chain.constants = program_.options.spike_kernels;
    const ValueId x = program_.layer(first).in[0];
    chain.binary = is_spikes(x);
    chain.x_steps = program_.steps_of(x);
    if (pixels && first == 0) {
      Stage& images = chain.stages.front();
      images.out = images.dtype;
      images.dtype = DType::u8;
      images.hold = images.act.is_neuron();
    }
    const std::size_t last = first + count - 1;
    // Of one step a chain can't see that its input is timed, as its mean wants it.
    chain.mean =
        graph().steps > 1 && mean_behind(last) != no_id && !program_.stage(last).act.is_neuron();
    return chain;
  }

  std::vector<float> folded_values() const {
    const auto& normalise = *graph().nodes[normalise_before_first()].as<graph::Normalise>();
    const Index channels = program_.value(graph().inputs[0]).channels();
    const std::vector<float> given = values_of_pixels(normalise, channels);
    std::vector<float> all;  // behind flatten for each pixel
    for (Index c = 0; c < program_.stage(0).c; c += channels)
      all.insert(all.end(), given.begin(), given.end());
    return all;
  }

  std::vector<Parameters> parameters_of(const KernelStep& step,
                                        const std::vector<float>& values) const {
    std::vector<Parameters> all;
    for (std::size_t i = step.first; i < step.first + step.count; ++i) {
      const graph::Node& node = program_.layer(i);
      const std::vector<float>* bias = graph::bias_of(graph(), node);
      all.push_back({.w = graph().constant(node.in[1]).data(),
                     .bias = bias ? bias->data() : nullptr,
                     .values = i > step.first || values.empty() ? nullptr : values.data()});
    }
    return all;
  }

  /// The chain's layers from `first` on as one step, by the kernel of that name or the planner's
  /// choice.
  KernelStep make_step(const OwnedChain& chain, std::size_t first, std::string_view kernel) const {
    KernelStep step;
    step.first = first;
    step.count = chain.stages.size();
    const graph::Node& end = program_.layer(first + step.count - 1);
    const bool timed = program_.value(end.out).timed;
    OwnedChain bound = chain;
    // A plan of one stage without a neuron knows no steps: to it they are further images.
    if (step.count == 1 && kernel.empty() && timed &&
        !end.as<graph::Fused>()->stage.act.is_neuron()) {
      step.fold = graph().steps;
      const Size images = Size(program_.at_once) * step.fold;
      if (!images.fits(most_images))
        throw Error(
            fmt::format("batch {}: {} computes the {} steps of each image as separate images, "
                        "expected at most {} of them in all. Use a smaller batch.",
                        program_.at_once, printable(end.name), step.fold, most_images));
      bound.stages.front().n = images.value();
    }
    if (kernel.empty()) bound.constants = bound.binary = bound.mean = false, bound.x_steps = 1;
    PlanOptions plan = plan_options();
    plan.kernel = kernel;
    step.bound = std::make_unique<Bound>(bound, plan);
    const bool folds = program_.reads_pixels && first == 0;
    const std::vector<float> values = folds ? folded_values() : std::vector<float>();
    step.bound->use(packed_once(*step.bound, parameters_of(step, values)));
    step.mean = bound.mean;
    step.x = program_.layer(first).in[0];
    if (folds) step.x = graph().inputs[0];
    step.y = step.mean ? graph().nodes[mean_behind(first + step.count - 1)].out : end.out;
    for (std::size_t i = first; i < first + step.count; ++i) {
      const std::vector<float>* bias = graph::bias_of(graph(), program_.layer(i));
      Tensor there;
      if (bias && !step.bound->kernel().facts().folds) {
        const auto count = static_cast<Index>(bias->size());
        there = Tensor(DType::f32, {count}, program_.options.device);
        copy_tensor(ConstTensorView::of(bias->data(), {count}), there);
      }
      step.bias.push_back(std::move(there));
    }
    return step;
  }

  ConvertStep convert_step(const graph::Node& node) const {
    const graph::Value& x = graph().input(node, 0);
    ConvertStep step{
        node.in[0], node.out, Conversion(*node.as<graph::Normalise>(), x.type, x.channels()), {}};
    if (!program_.on_gpu()) return step;
    std::vector<float> tables = step.conversion.values();
    if (!step.conversion.of_pixels()) {
      tables = step.conversion.mean();
      tables.insert(tables.end(), step.conversion.std().begin(), step.conversion.std().end());
    }
    const auto count = static_cast<Index>(tables.size());
    step.device_tables = Tensor(DType::f32, {count}, program_.options.device);
    copy_tensor(ConstTensorView::of(tables.data(), {count}), step.device_tables);
    return step;
  }

  void make_steps() {
    program_.steps.clear();
    program_.reports.clear();
    program_.parameters = 0;
    std::vector<bool> in_kernel(graph().nodes.size());  // means that a kernel gives
    std::size_t layer = 0;
    for (NodeId i = 0; i < graph().nodes.size(); ++i) {
      const graph::Node& node = graph().nodes[i];
      if (layer < program_.layers.size() && program_.layers[layer] == i) {
        const std::size_t count = row_from(layer);
        add_row(layer, count, in_kernel);
        layer += count;
      } else if (node.as<graph::Normalise>() &&
                 !(program_.reads_pixels && i == normalise_before_first())) {
        program_.steps.emplace_back(convert_step(node));
      } else if (node.as<graph::MeanOfSteps>() && !in_kernel[i]) {
        program_.steps.emplace_back(MeanStep{node.in[0], node.out});
      } else if (node.as<graph::Concat>() || node.as<graph::Slice>()) {
        add_copies(node, layer);
      }
    }
  }

  void add_row(std::size_t first, std::size_t count, std::vector<bool>& in_kernel) {
    const bool pixels = program_.reads_pixels && first == 0;
    const OwnedChain row = chain_of(first, count, pixels);
    for (const Segment& segment : cut(row, program_.machine, plan_options())) {
      const std::size_t at = first + segment.first;
      const Kernel* kernel = segment.kernel;
      const OwnedChain chain = chain_of(at, segment.count, pixels && kernel);
      KernelStep step = make_step(chain, at, kernel ? kernel->name() : "");
      if (segment.count > 1 && kernel && !kernel->facts().keeps_inner)
        for (std::size_t i = 0; i < segment.count; ++i)
          step.apart.push_back(make_step(chain_of(at + i, 1, false), at + i, ""));
      if (step.mean) in_kernel[mean_behind(at + segment.count - 1)] = true;
      report(step, segment.why);
      program_.steps.emplace_back(std::move(step));
    }
  }

  /// A copy for each part; those whose values lie in place already are taken out again.
  void add_copies(const graph::Node& node, std::size_t next_layer) {
    const std::size_t layer = std::min(next_layer, program_.layers.size() - 1);
    if (const auto* slice = node.as<graph::Slice>()) {
      program_.steps.emplace_back(
          CopyStep{node.in[0], node.out, slice->first, 0, slice->count, layer});
      return;
    }
    Index before = 0;
    for (const ValueId part : node.in) {
      const Index channels = program_.value(part).channels();
      program_.steps.emplace_back(CopyStep{part, node.out, 0, before, channels, layer});
      before += channels;
    }
  }

  void report(const KernelStep& step, const std::string& why) {
    for (std::size_t i = step.first; i < step.first + step.count; ++i) {
      const graph::Node& node = program_.layer(i);
      const std::vector<float>* bias = graph::bias_of(graph(), node);
      LayerReport r;
      r.name = node.name;
      r.kernel = step.bound->kernel().name();
      if (i == step.first) r.fusion = why;
      r.parameters = static_cast<Index>(graph().constant(node.in[1]).size() +
                                        (bias ? bias->size() : std::size_t{0}));
      program_.parameters += r.parameters;
      Stage single = program_.stage(i);
      single.n = 1;
      r.stage = to_text(single);
      r.macs = shapes_of(single).macs * program_.steps_of(node.in[0]);
      program_.reports.push_back(std::move(r));
    }
  }

  Program program_;
  std::unique_ptr<graph::Links> links_;
};

}  // namespace

void Program::forget_weights() {
  const auto nothing = std::make_shared<const std::vector<float>>();
  for (graph::Value& value : graph.values)
    if (value.constant) value.constant = nothing;
}

Program make_program(graph::Graph graph, const NetworkOptions& options) {
  return Builder(std::move(graph), options).build();
}

void check_options(const NetworkOptions& options) {
  if (options.batch < 0 || options.batch > most_images)
    throw Error(fmt::format("batch {}: expected 1 to {} images, or 0 to have Convoy choose.",
                            options.batch, most_images));
  if (options.weights != DType::f32 && options.weights != DType::f16)
    throw Error(fmt::format("weights {}: expected f32 (unchanged) or f16 (rounded to f16).",
                            to_text(options.weights)));
  machine_of(options);  // throws where that is none
}

}  // namespace convoy::network
