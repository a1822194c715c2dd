#include "inspect/operators.hpp"

#include <algorithm>
#include <map>

#include "graph/passes.hpp"
#include "graph/stage_of.hpp"

namespace convoy::inspect {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

OperatorKind kind_of(const Node& node, const Stage& stage) {
  if (const auto* activate = node.as<graph::Activate>())
    return activate->act.is_neuron() ? OperatorKind::neuron : OperatorKind::activation;
  if (node.as<graph::MaxPool>()) return OperatorKind::pool;
  const bool vector = stage.h == 1 && stage.w == 1 && stage.r == 1 && stage.s == 1;
  return vector ? OperatorKind::linear : OperatorKind::conv;
}

/// Which operator gives each value.
using Givers = std::map<ValueId, std::size_t>;

/// The operators whose outputs, side by side, are the value; none: it comes from the images.
std::vector<std::size_t> inputs_of(const Graph& graph, const Givers& givers, ValueId id) {
  if (const auto giver = givers.find(id); giver != givers.end()) return {giver->second};
  std::vector<std::size_t> all;
  for (const Node& node : graph.nodes) {
    if (node.out != id || node.as<graph::Normalise>()) continue;
    for (const ValueId part : node.in) {  // of a concatenation, or of what is flattened
      const std::vector<std::size_t> inputs = inputs_of(graph, givers, part);
      all.insert(all.end(), inputs.begin(), inputs.end());
    }
  }
  return all;
}

Operator operator_of(const Graph& graph, const Node& node, const Stage& stage,
                     const Givers& givers) {
  Operator op;
  op.name = node.name;
  op.stage = stage.normalised();
  op.kind = kind_of(node, op.stage);
  std::vector<float> ones;
  op.w = graph::weights_of(graph, node, ones);
  if (const std::vector<float>* bias = graph::bias_of(graph, node)) op.bias = *bias;
  op.inputs = inputs_of(graph, givers, node.in[0]);
  op.reads_timed = graph.input(node, 0).timed;
  op.timed = graph.output(node).timed;
  return op;
}

}  // namespace

std::string_view to_text(OperatorKind kind) {
  constexpr std::string_view texts[] = {"conv", "linear", "activation", "neuron", "pool", "mean"};
  return texts[static_cast<std::size_t>(kind)];
}

Operators operators_of(network::Model model) {
  const Graph plain = graph::order_columns(graph::fold_batchnorm(std::move(model.graph)));
  const Graph fused = graph::fuse(plain, [](const Stage&) { return true; });
  Operators result;
  result.text = std::move(model.text);
  Givers givers;
  std::map<std::string, std::size_t> numbers;
  for (const Node& node : plain.nodes) {
    if (node.as<graph::MeanOfSteps>()) result.mean = node.name;
    const std::optional<Stage> stage = graph::stage_of(plain, node);
    if (!stage) continue;
    Operator op = operator_of(plain, node, *stage, givers);
    op.gives = result.all.size();
    givers[node.out] = numbers[node.name] = op.gives;
    result.all.push_back(std::move(op));
  }
  for (const Node& node : fused.nodes) {
    const auto* block = node.as<graph::Fused>();
    if (!block) continue;
    const std::size_t first = numbers.at(node.parts.front());
    Operator op = operator_of(fused, node, block->stage, {});
    op.name = "fuse" + std::to_string(result.blocks.size() + 1);
    op.inputs = result.all[first].inputs;
    op.gives = numbers.at(node.parts.back());
    op.kind = result.all[op.gives].kind;
    // The sums alone, by an arithmetic that the whole layer may have too.
    result.all[first].stage.strict = block->stage.exact();
    result.blocks.push_back(std::move(op));
  }
  return result;
}

Stage stage_for(const Operator& op, Index steps, Index n) {
  Stage stage = op.stage;
  stage.n = op.reads_timed && !stage.act.is_neuron() ? n * steps : n;
  return stage;
}

std::vector<Index> output_shape(const Operator& op, Index steps, Index n) {
  const Shapes shapes = shapes_of(op.stage);
  return {op.timed ? steps : 1, n, shapes.out_h, shapes.out_w, op.stage.k};
}

}  // namespace convoy::inspect
