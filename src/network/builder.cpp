// GraphBuilder: a graph of plain operators, by hand.
#include "network/builder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <set>

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
  std::set<std::string> named;  // the names of operators that the user gave

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
  /// Appends the operator and its parameters, or nothing if it throws. `name` is the user's, or
  /// empty.
  Value add(graph::Operator op, const std::vector<Value>& operands, const std::string& name,
            const std::vector<Parameter>& parameters = {}) {
    if (named.contains(name))
      throw Error(fmt::format("{} \"{}\": an operator has that name already, expected another name",
                              graph::word_of(op), printable(name)));
    const std::size_t values = graph.values.size(), nodes = graph.nodes.size();
    const auto undo = [&] {
      graph.values.resize(values);
      graph.nodes.resize(nodes);
    };
    const std::string own =
        name.empty() ? free_node_name(next(std::string(graph::word_of(op)))) : name;
    std::vector<graph::ValueId> in;
    in.reserve(operands.size() + parameters.size());
    for (const Value x : operands) in.push_back(checked(x));
    try {
      for (const Parameter& parameter : parameters) in.push_back(constant(parameter));
      const graph::ValueId out =
          graph.add({.op = std::move(op), .name = own, .in = std::move(in)}, graph.free_name(own));
      if (!name.empty()) give_name(name);
      return value(out);
    } catch (const Error& error) {
      undo();
      if (name.empty()) throw;
      throw Error(fmt::format("{}: {}", printable(name), error.what()), error.code());
    } catch (...) {
      undo();
      throw;
    }
  }
  /// The last operator has the user's name. One that only a number was added to yields it.
  void give_name(const std::string& name) {
    named.insert(name);
    for (std::size_t i = 0; i + 1 < graph.nodes.size(); ++i)
      if (graph.nodes[i].name == name) graph.nodes[i].name = free_node_name(name);
  }
  std::string free_node_name(std::string name) const {
    const auto taken = [&] {
      return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                         [&](const graph::Node& node) { return node.name == name; });
    };
    while (taken()) name += '\'';
    return name;
  }
  bool is_port(graph::ValueId id) const {
    return graph.is_output(id) ||
           std::find(graph.inputs.begin(), graph.inputs.end(), id) != graph.inputs.end();
  }
  /// Whether an input or an output has the name, which is then not free for another one.
  bool is_name_of_port(const std::string& name) const {
    for (graph::ValueId id = 0; id < graph.values.size(); ++id)
      if (graph.values[id].name == name && is_port(id)) return true;
    return false;
  }
  /// Names of inputs and outputs are the user's: a value inside the graph yields them.
  void take_port_name(const std::string& name) {
    for (graph::Value& value : graph.values)
      if (value.name == name) value.name = graph.free_name(name);
  }
  graph::ValueId constant(const Parameter& parameter) {
    const auto& [what, view, rank] = parameter;
    std::vector<Index> axes(view.shape.begin(), view.shape.begin() + view.rank);
    if (!view || view.rank != rank)
      throw Error(
          fmt::format("{}: found {}, expected {} axes", what, convoy::describe(view), rank));
    std::vector<float> numbers = network::numbers_of(view, what);
    return graph.add_constant(graph.free_name(fmt::format("{} {}", next("constant"), what)),
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
  if (name.empty() || all.is_name_of_port(name))
    throw Error(fmt::format("input \"{}\": expected a name that no other input or output has",
                            printable(name)));
  all.take_port_name(name);
  graph::Value value;
  value.name = name;
  value.type = dtype;
  value.axes = axes;
  all.graph.inputs.push_back(all.graph.add(std::move(value)));
  return all.value(all.graph.inputs.back());
}

GraphBuilder::Value GraphBuilder::normalise(Value x, const std::vector<float>& mean,
                                            const std::vector<float>& std,
                                            const std::string& name) {
  return impl().add(graph::Normalise{mean, std}, {x}, name);
}

GraphBuilder::Value GraphBuilder::convolution(Value x, const ConstTensorView& w,
                                              const ConstTensorView& bias,
                                              const ConvolutionOptions& options,
                                              const std::string& name) {
  return impl().add(
      graph::Convolution{options.stride, options.pad, options.dil, options.groups, options.strict},
      {x}, name, Impl::weights_and_bias(w, 4, bias));
}

GraphBuilder::Value GraphBuilder::linear(Value x, const ConstTensorView& w,
                                         const ConstTensorView& bias, const std::string& name) {
  return impl().add(graph::Linear{}, {x}, name, Impl::weights_and_bias(w, 2, bias));
}

GraphBuilder::Value GraphBuilder::batch_norm(Value x, const ConstTensorView& gamma,
                                             const ConstTensorView& beta,
                                             const ConstTensorView& mean,
                                             const ConstTensorView& variance, float eps,
                                             const std::string& name) {
  return impl().add(
      graph::BatchNorm{eps}, {x}, name,
      {{"gamma", gamma, 1}, {"beta", beta, 1}, {"mean", mean, 1}, {"variance", variance, 1}});
}

GraphBuilder::Value GraphBuilder::activation(Value x, const Activation& act, bool soft,
                                             const std::string& name) {
  return impl().add(graph::Activate{act, soft}, {x}, name);
}

GraphBuilder::Value GraphBuilder::max_pool(Value x, const Pool& pool, const std::string& name) {
  return impl().add(graph::MaxPool{pool.normalised()}, {x}, name);
}

GraphBuilder::Value GraphBuilder::concat(const std::vector<Value>& values,
                                         const std::string& name) {
  return impl().add(graph::Concat{}, values, name);
}

GraphBuilder::Value GraphBuilder::slice(Value x, Index first, Index count,
                                        const std::string& name) {
  return impl().add(graph::Slice{first, count}, {x}, name);
}

GraphBuilder::Value GraphBuilder::flatten(Value x, bool channels_first, const std::string& name) {
  return impl().add(graph::Flatten{channels_first}, {x}, name);
}

GraphBuilder::Value GraphBuilder::mean_of_steps(Value x, const std::string& name) {
  return impl().add(graph::MeanOfSteps{}, {x}, name);
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
  if (name.empty() || all.is_name_of_port(name))
    throw Error(fmt::format("output \"{}\": expected a name that no other input or output has",
                            printable(name)));
  all.take_port_name(name);
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
