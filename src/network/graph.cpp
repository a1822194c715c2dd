#include "network/graph.hpp"

namespace convoy::network {

std::size_t Graph::reader(std::size_t i) const {
  for (std::size_t j = i + 1; j < layers.size(); ++j)
    if (layers[j].input == static_cast<Index>(i)) return j;
  return layers.size();
}

bool Graph::in_a_row(std::size_t first, std::size_t count) const {
  for (std::size_t i = first + 1; i < first + count; ++i) {
    if (layers[i].input != static_cast<Index>(i) - 1) return false;
    for (std::size_t j = i + 1; j < layers.size(); ++j)
      if (layers[j].input == static_cast<Index>(i) - 1) return false;
  }
  return true;
}

Graph graph_of(const NetworkText& text, std::vector<LayerWeights> weights, Index batch) {
  Graph graph;
  graph.steps = text.steps;
  bool timed = false;
  for (std::size_t i = 0; i < text.layers.size(); ++i) {
    const NetworkLayer& line = text.layers[i];
    if (line.flatten) continue;  // channels come last already: the vector has the same bytes
    Layer layer;
    layer.name = line.name;
    layer.stage = line.stage;
    layer.stage.n = batch;
    layer.input = static_cast<Index>(graph.layers.size()) - 1;
    layer.weights = std::move(weights[i]);
    layer.timed = timed = timed || line.stage.act.is_neuron();
    graph.layers.push_back(std::move(layer));
  }
  return graph;
}

}  // namespace convoy::network
