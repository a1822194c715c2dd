#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "convoy/error.hpp"
#include "convoy/plan.hpp"
#include "core/printable.hpp"
#include "graph/passes.hpp"

namespace convoy::graph {
namespace {

using Numbers = std::vector<float>;

bool all_finite(const Numbers& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](float v) { return std::isfinite(v); });
}

/// The convolution or linear layer that node i stands behind, if only it reads the sums.
NodeId folded_into(const Graph& graph, const Links& links, NodeId i) {
  const ValueId x = graph.nodes[i].in[0];
  const NodeId before = links.producer[x];
  if (before == no_id || links.only_user(graph, x) != i) return no_id;
  const Node& node = graph.nodes[before];
  return node.as<Convolution>() || node.as<Linear>() ? before : no_id;
}

void fold(const Graph& graph, const Node& norm, Numbers& w, Numbers& bias,
          const std::string& into) {
  const auto filters = static_cast<Index>(bias.size());
  const Index taps = static_cast<Index>(w.size()) / filters;
  const auto parameter = [&](std::size_t i) {
    return ConstTensorView::of(graph.constant(norm.in[i]).data(), {filters});
  };
  convoy::fold_batchnorm(TensorView::of(w.data(), {filters, 1, 1, taps}),
                         TensorView::of(bias.data(), {filters}), parameter(1), parameter(2),
                         parameter(3), parameter(4), norm.as<BatchNorm>()->eps);
  // Each number was finite; scaled by gamma / sqrt(variance) it may not be.
  if (!all_finite(w) || !all_finite(bias))
    throw Error(
        fmt::format("{}: folding it into {} gives numbers beyond fp32, expected finite numbers. "
                    "Was the training unstable?",
                    norm.origin.empty() ? printable(norm.name) : norm.origin, printable(into)));
}

}  // namespace

Graph fold_batchnorm(Graph graph) {
  for (NodeId i = 0; i < graph.nodes.size(); ++i) {
    if (!graph.nodes[i].as<BatchNorm>()) continue;
    const NodeId into = folded_into(graph, Links(graph), i);
    const Node norm = graph.nodes[i];
    const Value& x = graph.input(norm, 0);
    const Index channels = x.channels();
    const auto filters = static_cast<std::size_t>(channels);
    Numbers w(filters, 1.0F), bias(filters, 0.0F);
    std::vector<Index> axes{channels, 1, 1, 1};
    if (into != no_id) {
      const Node& conv = graph.nodes[into];
      w = graph.constant(conv.in[1]);
      axes = graph.values[conv.in[1]].axes;
      if (conv.in.size() > 2) bias = graph.constant(conv.in[2]);
    }
    fold(graph, norm, w, bias, into == no_id ? norm.name : graph.nodes[into].name);
    const ValueId folded = graph.add_constant(graph.free_name(norm.name + " weights"), axes,
                                              std::move(w)),
                  shift = graph.add_constant(graph.free_name(norm.name + " bias"), {channels},
                                             std::move(bias));
    if (into == no_id) {
      Node& alone = graph.nodes[i];
      alone.op = Convolution{.groups = channels};
      alone.in = {norm.in[0], folded, shift};
      if (!graph.input(alone, 0).is_image())
        throw Error(
            fmt::format("{}: found a batch-norm of a vector without a linear layer before "
                        "it, expected one that follows a linear layer",
                        printable(norm.name)));
      continue;
    }
    Node& conv = graph.nodes[into];
    conv.in = {conv.in[0], folded, shift};
    conv.out = norm.out;
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(i));
    --i;
  }
  graph = without_dead(std::move(graph));
  graph.verify();
  return graph;
}

}  // namespace convoy::graph
