#include "graph/stage_of.hpp"

namespace convoy::graph {
namespace {

/// A filter of one pixel for each channel of x.
Stage of_each_channel(const Value& x) {
  return {.dtype = x.type,
          .h = x.h(),
          .w = x.w(),
          .c = x.channels(),
          .k = x.channels(),
          .r = 1,
          .s = 1,
          .groups = x.channels()};
}

Stage with_weights(const Value& x, const Value& w) {
  Stage stage{.dtype = x.type, .h = x.h(), .w = x.w(), .c = x.channels(), .k = w.axes[0]};
  stage.r = w.axes.size() == 4 ? w.axes[1] : 1;
  stage.s = w.axes.size() == 4 ? w.axes[2] : 1;
  return stage;
}

}  // namespace

std::optional<Stage> stage_of(const Graph& graph, const Node& node) {
  const Value& x = graph.input(node, 0);
  if (const auto* conv = node.as<Convolution>()) {
    Stage stage = with_weights(x, graph.input(node, 1));
    stage.stride = conv->stride;
    stage.pad = conv->pad;
    stage.dil = conv->dil;
    stage.groups = conv->groups;
    stage.strict = conv->strict;
    stage.bias = node.in.size() > 2;
    return stage;
  }
  if (const auto* linear = node.as<Linear>()) {
    Stage stage = with_weights(x, graph.input(node, 1));
    stage.strict = linear->strict;
    stage.bias = node.in.size() > 2;
    return stage;
  }
  if (const auto* activate = node.as<Activate>()) {
    Stage stage = of_each_channel(x);
    stage.act = activate->act;
    stage.soft = activate->soft;
    if (stage.act.is_neuron()) {
      stage.t = graph.steps;
      stage.hold = !x.timed && graph.steps > 1;
    }
    return stage;
  }
  if (const auto* pool = node.as<MaxPool>()) {
    Stage stage = of_each_channel(x);
    stage.pool = pool->pool;
    return stage;
  }
  if (const auto* fused = node.as<Fused>()) return fused->stage;
  return {};
}

Stage for_images(const Graph& graph, const Node& node, Stage stage, Index n) {
  const bool further = graph.input(node, 0).timed && !stage.act.is_neuron();
  stage.n = further ? n * graph.steps : n;
  return stage;
}

const std::vector<float>& weights_of(const Graph& graph, const Node& node,
                                     std::vector<float>& ones) {
  if (node.in.size() > 1) return graph.constant(node.in[1]);
  ones.assign(static_cast<std::size_t>(graph.input(node, 0).channels()), 1.0F);
  return ones;
}

const std::vector<float>* bias_of(const Graph& graph, const Node& node) {
  return node.in.size() > 2 && !node.as<BatchNorm>() ? &graph.constant(node.in[2]) : nullptr;
}

}  // namespace convoy::graph
