// GraphBuilder: a graph of plain operators, by hand.
#include "network/builder.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/failure.hpp"
#include "core/printable.hpp"
#include "network/flow.hpp"
#include "network/impl.hpp"
#include "network/parameter_views.hpp"

namespace convoy {

struct GraphBuilder::Impl {
  graph::Graph graph;

  std::string next(const std::string& word) {
    return fmt::format("{}{}", word, graph.nodes.size() + 1);
  }
  graph::ValueId checked(Value x) const {
    if (x.id >= graph.values.size() || graph.values[x.id].constant)
      throw Error(
          fmt::format("value {}: this builder has none of that number, expected one that "
                      "it returned",
                      x.id));
    return x.id;
  }
  Value add(graph::Operator op, std::vector<graph::ValueId> in) {
    const std::size_t before = graph.values.size();
    const std::string name = next(std::string(graph::word_of(op)));
    try {
      return {graph.add({.op = std::move(op), .name = name, .in = std::move(in)}, free_name(name))};
    } catch (...) {
      graph.values.resize(before);
      throw;
    }
  }
  /// Names of inputs and outputs are the user's.
  std::string free_name(std::string name) const {
    const auto taken = [&] {
      for (const graph::Value& value : graph.values)
        if (value.name == name) return true;
      return false;
    };
    while (taken()) name += '\'';
    return name;
  }
  graph::ValueId constant(const char* what, const ConstTensorView& view, int rank) {
    std::vector<Index> axes(view.shape.begin(), view.shape.begin() + view.rank);
    if (!view || view.rank != rank)
      throw Error(
          fmt::format("{}: found {}, expected {} axes", what, convoy::describe(view), rank));
    std::vector<float> numbers = network::numbers_of(view, what);
    return graph.add_constant(free_name(fmt::format("{} {}", next("constant"), what)),
                              std::move(axes), std::move(numbers));
  }
};

const graph::Graph& graph_of(const GraphBuilder& builder) {
  return builder.impl().graph;
}

GraphBuilder::GraphBuilder(Index steps) : impl_(std::make_unique<Impl>()) {
  if (steps < 1 || steps > network::most_steps)
    throw Error(fmt::format("steps: {}, expected 1 to {}", steps, network::most_steps));
  impl_->graph.steps = steps;
}
GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder& GraphBuilder::operator=(GraphBuilder&&) noexcept = default;

GraphBuilder::Impl& GraphBuilder::impl() const {
  if (!impl_) throw Error("this GraphBuilder was moved from. Use the one that it was moved to.");
  return *impl_;
}

GraphBuilder::Value GraphBuilder::input(const std::string& name, DType dtype,
                                        const std::vector<Index>& axes) {
  Impl& all = impl();
  if (axes.size() != 3 && axes.size() != 1)
    throw Error(fmt::format("input {}: found {} axes, expected {{H,W,C}} or {{C}}", printable(name),
                            axes.size()));
  for (const Index size : axes)
    if (size < 1 || size >= Index{1} << 31)
      throw Error(fmt::format("input {}: found the size {}, expected 1 to 2^31 - 1",
                              printable(name), size));
  if (dtype == DType::i32)
    throw Error(fmt::format("input {}: found i32, expected u8, f32, f16 or bf16", printable(name)));
  if (name.empty() || all.free_name(name) != name)
    throw Error(fmt::format("input \"{}\": expected a name that no other input or output has",
                            printable(name)));
  graph::Value value;
  value.name = name;
  value.type = dtype;
  value.axes = axes;
  all.graph.inputs.push_back(all.graph.add(std::move(value)));
  return {all.graph.inputs.back()};
}

GraphBuilder::Value GraphBuilder::normalise(Value x, const std::vector<float>& mean,
                                            const std::vector<float>& std) {
  return impl().add(graph::Normalise{mean, std}, {impl().checked(x)});
}

GraphBuilder::Value GraphBuilder::convolution(Value x, const ConstTensorView& w,
                                              const ConstTensorView& bias,
                                              const ConvolutionOptions& options) {
  Impl& all = impl();
  const graph::Convolution op{options.stride, options.pad, options.dil, options.groups,
                              options.strict};
  std::vector<graph::ValueId> in{all.checked(x), all.constant("weights", w, 4)};
  if (bias) in.push_back(all.constant("bias", bias, 1));
  return all.add(op, std::move(in));
}

GraphBuilder::Value GraphBuilder::linear(Value x, const ConstTensorView& w,
                                         const ConstTensorView& bias) {
  Impl& all = impl();
  std::vector<graph::ValueId> in{all.checked(x), all.constant("weights", w, 2)};
  if (bias) in.push_back(all.constant("bias", bias, 1));
  return all.add(graph::Linear{}, std::move(in));
}

GraphBuilder::Value GraphBuilder::batch_norm(Value x, const ConstTensorView& gamma,
                                             const ConstTensorView& beta,
                                             const ConstTensorView& mean,
                                             const ConstTensorView& variance, float eps) {
  Impl& all = impl();
  return all.add(graph::BatchNorm{eps},
                 {all.checked(x), all.constant("gamma", gamma, 1), all.constant("beta", beta, 1),
                  all.constant("mean", mean, 1), all.constant("variance", variance, 1)});
}

GraphBuilder::Value GraphBuilder::activation(Value x, const Activation& act, bool soft) {
  return impl().add(graph::Activate{act, soft}, {impl().checked(x)});
}

GraphBuilder::Value GraphBuilder::max_pool(Value x, const Pool& pool) {
  return impl().add(graph::MaxPool{pool.normalised()}, {impl().checked(x)});
}

GraphBuilder::Value GraphBuilder::concat(const std::vector<Value>& values) {
  std::vector<graph::ValueId> in;
  in.reserve(values.size());
  for (const Value x : values) in.push_back(impl().checked(x));
  return impl().add(graph::Concat{}, std::move(in));
}

GraphBuilder::Value GraphBuilder::slice(Value x, Index first, Index count) {
  return impl().add(graph::Slice{first, count}, {impl().checked(x)});
}

GraphBuilder::Value GraphBuilder::flatten(Value x, bool channels_first) {
  return impl().add(graph::Flatten{channels_first}, {impl().checked(x)});
}

GraphBuilder::Value GraphBuilder::mean_of_steps(Value x) {
  return impl().add(graph::MeanOfSteps{}, {impl().checked(x)});
}

void GraphBuilder::output(const std::string& name, Value x) {
  Impl& all = impl();
  const graph::ValueId id = all.checked(x);
  const auto& graph = all.graph;
  if (std::find(graph.inputs.begin(), graph.inputs.end(), id) != graph.inputs.end())
    throw Error(fmt::format("output {}: it is an input, expected the value of an operator",
                            printable(name)));
  if (graph.is_output(id))
    throw Error(fmt::format("output {}: it is the output {} already, expected another value",
                            printable(name), printable(graph.values[id].name)));
  if (name.empty() || (all.free_name(name) != name && graph.values[id].name != name))
    throw Error(fmt::format("output \"{}\": expected a name that no other input or output has",
                            printable(name)));
  all.graph.values[id].name = name;
  all.graph.outputs.push_back(id);
}

std::string GraphBuilder::describe() const {
  return graph::to_text(impl().graph);
}

Network GraphBuilder::build(const NetworkOptions& options) const try {
  const graph::Graph& graph = impl().graph;
  if (graph.outputs.empty())
    throw Error("the graph has no output, expected at least one. Call output(NAME, VALUE).");
  return Network(Network::Impl::make(graph, options));
} catch (...) {
  rethrow_as_error();
}

}  // namespace convoy
