// GraphBuilder: a graph of plain operators, by hand.
#include "network/builder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>

#include "core/failure.hpp"
#include "core/printable.hpp"
#include "network/flow.hpp"
#include "network/impl.hpp"
#include "network/parameter_views.hpp"

namespace convoy {

namespace {

std::uint64_t next_builder() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// A constant operand as the user gives it.
struct Parameter {
  const char* what;
  ConstTensorView view;
  int rank;
};

}  // namespace

struct GraphBuilder::Impl {
  graph::Graph graph;
  std::uint64_t number = next_builder();

  Value value(graph::ValueId id) const { return {id, number}; }
  std::string next(const std::string& word) {
    return fmt::format("{}{}", word, graph.nodes.size() + 1);
  }
  graph::ValueId checked(Value x) const {
    if (x.id >= graph.values.size() || graph.values[x.id].constant)
      throw Error(
          fmt::format("value {}: this builder has none of that number, expected one that "
                      "it returned",
                      x.id));
    if (x.builder != number)
      throw Error(
          fmt::format("value {}: it belongs to another builder, expected one that this builder "
                      "returned",
                      x.id));
    return x.id;
  }
  /// Appends the operator and its parameters, or nothing if it throws.
  Value add(graph::Operator op, const std::vector<Value>& operands,
            const std::vector<Parameter>& parameters = {}) {
    const std::size_t before = graph.values.size();
    const std::string name = next(std::string(graph::word_of(op)));
    std::vector<graph::ValueId> in;
    for (const Value x : operands) in.push_back(checked(x));
    try {
      for (const Parameter& parameter : parameters) in.push_back(constant(parameter));
      return value(
          graph.add({.op = std::move(op), .name = name, .in = std::move(in)}, free_name(name)));
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
  graph::ValueId constant(const Parameter& parameter) {
    const auto& [what, view, rank] = parameter;
    std::vector<Index> axes(view.shape.begin(), view.shape.begin() + view.rank);
    if (!view || view.rank != rank)
      throw Error(
          fmt::format("{}: found {}, expected {} axes", what, convoy::describe(view), rank));
    std::vector<float> numbers = network::numbers_of(view, what);
    return graph.add_constant(free_name(fmt::format("{} {}", next("constant"), what)),
                              std::move(axes), std::move(numbers));
  }
  /// A layer's weights, and its bias if there is one.
  static std::vector<Parameter> weights_and_bias(const ConstTensorView& w, int rank,
                                                 const ConstTensorView& bias) {
    std::vector<Parameter> all{{"weights", w, rank}};
    if (bias || bias.rank != 0) all.push_back({"bias", bias, 1});
    return all;
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
  return all.value(all.graph.inputs.back());
}

GraphBuilder::Value GraphBuilder::normalise(Value x, const std::vector<float>& mean,
                                            const std::vector<float>& std) {
  return impl().add(graph::Normalise{mean, std}, {x});
}

GraphBuilder::Value GraphBuilder::convolution(Value x, const ConstTensorView& w,
                                              const ConstTensorView& bias,
                                              const ConvolutionOptions& options) {
  return impl().add(
      graph::Convolution{options.stride, options.pad, options.dil, options.groups, options.strict},
      {x}, Impl::weights_and_bias(w, 4, bias));
}

GraphBuilder::Value GraphBuilder::linear(Value x, const ConstTensorView& w,
                                         const ConstTensorView& bias) {
  return impl().add(graph::Linear{}, {x}, Impl::weights_and_bias(w, 2, bias));
}

GraphBuilder::Value GraphBuilder::batch_norm(Value x, const ConstTensorView& gamma,
                                             const ConstTensorView& beta,
                                             const ConstTensorView& mean,
                                             const ConstTensorView& variance, float eps) {
  return impl().add(
      graph::BatchNorm{eps}, {x},
      {{"gamma", gamma, 1}, {"beta", beta, 1}, {"mean", mean, 1}, {"variance", variance, 1}});
}

GraphBuilder::Value GraphBuilder::activation(Value x, const Activation& act, bool soft) {
  return impl().add(graph::Activate{act, soft}, {x});
}

GraphBuilder::Value GraphBuilder::max_pool(Value x, const Pool& pool) {
  return impl().add(graph::MaxPool{pool.normalised()}, {x});
}

GraphBuilder::Value GraphBuilder::concat(const std::vector<Value>& values) {
  return impl().add(graph::Concat{}, values);
}

GraphBuilder::Value GraphBuilder::slice(Value x, Index first, Index count) {
  return impl().add(graph::Slice{first, count}, {x});
}

GraphBuilder::Value GraphBuilder::flatten(Value x, bool channels_first) {
  return impl().add(graph::Flatten{channels_first}, {x});
}

GraphBuilder::Value GraphBuilder::mean_of_steps(Value x) {
  return impl().add(graph::MeanOfSteps{}, {x});
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
