#include <fmt/core.h>

#include "convoy/error.hpp"
#include "core/printable.hpp"
#include "graph/passes.hpp"
#include "graph/reorder.hpp"

namespace convoy::graph {
namespace {

/// Reorders the columns of every linear layer that reads `vector`, itself or behind activations.
void reorder_readers(Graph& graph, const Links& links, ValueId vector, const Value& image) {
  const auto refuse = [&](const std::string& who) {
    throw Error(
        fmt::format("{} reads an image that is flattened in PyTorch's order (C,H,W), "
                    "expected linear layers only, whose columns can be put into the order "
                    "of memory (H,W,C)",
                    who));
  };
  if (graph.is_output(vector)) refuse("the network's output");
  for (const NodeId user : links.users[vector]) {
    Node& node = graph.nodes[user];
    if (node.as<Activate>()) {
      reorder_readers(graph, links, node.out, image);
      continue;
    }
    if (!node.as<Linear>()) refuse(printable(node.name));
    const Value& w = graph.values[node.in[1]];
    std::vector<float> ordered =
        pixels_first(*w.constant, w.axes[0], image.channels(), image.h() * image.w());
    const std::vector<Index> axes = w.axes;
    const std::string name = graph.free_name(w.name + " in memory's order");
    node.in[1] = graph.add_constant(name, axes, std::move(ordered));
  }
}

}  // namespace

Graph order_columns(Graph graph) {
  const Links links(graph);
  for (Node& node : graph.nodes) {
    const auto* flatten = node.as<Flatten>();
    if (!flatten || !flatten->channels_first) continue;
    const Value image = graph.input(node, 0);
    if (image.channels() > 1 && image.h() * image.w() > 1)
      reorder_readers(graph, links, node.out, image);
    node.op = Flatten{.channels_first = false};
  }
  graph = without_dead(std::move(graph));
  graph.verify();
  return graph;
}

}  // namespace convoy::graph
