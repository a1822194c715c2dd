// From the text of a network and its parameters to a graph.
#pragma once

#include <string>

#include "convoy/network.hpp"
#include "graph/graph.hpp"
#include "io/weights.hpp"

namespace convoy::network {

/// What a network is made of.
struct Model {
  NetworkText text;
  graph::Graph graph;  // of plain operators, as the lines say
};

/// Reads every parameter of a text that was parsed or completed, and puts filters from PyTorch's
/// [K,C,R,S] into [K,R,S,C]. The values and nodes are called as `convoy check` names them: the sums
/// of a layer have the layer's name; what follows them is called after what it does, with a number
/// that counts in the network (relu1, if1, pool1). Throws Error naming parameter, count and
/// meaning.
graph::Graph read_graph(const NetworkText& text, io::ParameterSource& parameters);

/// A model folder: network.txt and its parameters. With `steps` it runs so many time steps,
/// whatever the text says. Throws Error for a file that is missing or wrong.
Model read_model(const std::string& folder, Index steps = 0);

}  // namespace convoy::network
