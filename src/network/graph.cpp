#include "network/graph.hpp"

#include <algorithm>
#include <map>

namespace convoy::network {

bool Graph::reads_timed(std::size_t i) const {
  const Index first = layers[i].inputs.front();
  return first != network_input && layers[static_cast<std::size_t>(first)].timed;
}

bool Graph::in_a_row(std::size_t first, std::size_t count) const {
  for (std::size_t i = first + 1; i < first + count; ++i) {
    const Index before = static_cast<Index>(i) - 1;
    if (layers[i].inputs != std::vector<Index>{before}) return false;
    for (std::size_t j = i + 1; j < layers.size(); ++j)
      if (std::count(layers[j].inputs.begin(), layers[j].inputs.end(), before) > 0) return false;
  }
  return true;
}

Graph graph_of(const NetworkText& text, std::vector<LayerWeights> weights, Index batch) {
  Graph graph;
  graph.steps = text.steps;
  std::map<std::string, Index> numbers;
  Index before = network_input;
  for (std::size_t i = 0; i < text.layers.size(); ++i) {
    const NetworkLayer& line = text.layers[i];
    if (line.flatten) continue;  // channels come last already: the vector has the same bytes
    Layer layer;
    layer.name = line.name;
    layer.stage = line.stage;
    layer.stage.n = batch;
    for (const std::string& name : line.from) layer.inputs.push_back(numbers.at(name));
    if (line.from.empty()) layer.inputs.push_back(before);
    layer.weights = std::move(weights[i]);
    before = numbers[line.name] = static_cast<Index>(graph.layers.size());
    graph.layers.push_back(std::move(layer));
    Layer& added = graph.layers.back();
    added.timed = line.stage.act.is_neuron() || graph.reads_timed(graph.layers.size() - 1);
  }
  return graph;
}

}  // namespace convoy::network
