#include <algorithm>

#include "graph/passes.hpp"
#include "graph/stage_of.hpp"

namespace convoy::graph {
namespace {

/// One stage that grows by what follows it.
class Growing {
 public:
  Growing(const Graph& graph, const Links& links, NodeId first)
      : graph_(graph),
        links_(links),
        stage_(stage_of(graph, graph.nodes[first]).value_or(Stage{})) {
    take(first);
  }

  /// Takes the next node in if it is the only reader and the stage with it is served.
  bool grow(const Serves& serves) {
    const NodeId next = links_.only_user(graph_, out_);
    if (next == no_id) return false;
    Stage larger = stage_;
    if (!add(larger, graph_.nodes[next]) || !problems(larger).empty() ||
        !serves(larger.normalised()))
      return false;
    stage_ = larger;
    take(next);
    return true;
  }

  /// The nodes that it is made of.
  const std::vector<NodeId>& nodes() const { return nodes_; }
  ValueId out() const { return out_; }
  Stage stage() const { return stage_.normalised(); }

 private:
  /// Riders act in this order: activation, pool.
  bool add(Stage& stage, const Node& node) const {
    if (const auto* activate = node.as<Activate>(); activate && !stage.pool) {
      if (!(stage.act == no_act)) return false;
      const Stage alone = stage_of(graph_, node).value_or(Stage{});
      stage.act = alone.act;
      stage.soft = alone.soft;
      stage.t = alone.t;
      stage.hold = alone.hold;
      return true;
    }
    if (const auto* pool = node.as<MaxPool>(); pool && !stage.pool) {
      stage.pool = pool->pool;
      return true;
    }
    return false;
  }
  void take(NodeId id) {
    nodes_.push_back(id);
    out_ = graph_.nodes[id].out;
  }

  const Graph& graph_;
  const Links& links_;
  Stage stage_;
  std::vector<NodeId> nodes_;
  ValueId out_ = no_id;
};

}  // namespace

Graph fuse(Graph graph, const Serves& serves) {
  const Links links(graph);
  std::vector<bool> taken(graph.nodes.size());
  std::vector<Node> nodes;
  std::vector<std::pair<std::string, std::size_t>> ones;  // of nodes without weights
  for (NodeId i = 0; i < graph.nodes.size(); ++i) {
    if (taken[i]) continue;
    const Node& node = graph.nodes[i];
    if (!stage_of(graph, node) || node.as<Fused>()) {
      nodes.push_back(node);
      continue;
    }
    Growing growing(graph, links, i);
    if (node.as<Convolution>() || node.as<Linear>())
      while (growing.grow(serves)) {
      }
    Node fused = node;
    fused.op = Fused{growing.stage()};
    fused.out = growing.out();
    for (const NodeId part : growing.nodes()) {
      taken[part] = true;
      fused.parts.push_back(graph.nodes[part].name);
    }
    if (fused.in.size() < 2) ones.emplace_back(node.name, nodes.size());
    nodes.push_back(std::move(fused));
  }
  graph.nodes = std::move(nodes);
  for (const auto& [name, i] : ones) {
    const Index channels = graph.input(graph.nodes[i], 0).channels();
    graph.nodes[i].in.push_back(
        graph.add_constant(graph.free_name(name + " ones"), {channels, 1, 1, 1},
                           std::vector<float>(static_cast<std::size_t>(channels), 1.0F)));
  }
  graph = without_dead(std::move(graph));
  graph.verify();
  return graph;
}

Graph optimised(Graph graph, const Serves& serves) {
  return fuse(order_columns(fold_batchnorm(without_dead(std::move(graph)))), serves);
}

}  // namespace convoy::graph
