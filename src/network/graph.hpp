// What a network computes, as layers with inputs: the text's lines without `flatten`, each with its
// weights. A chain is the simplest case; a layer may also read others than the one before it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/chain.hpp"
#include "network/load.hpp"

namespace convoy::network {

/// The input of the network, in place of a layer's number.
inline constexpr Index network_input = -1;

struct Layer {
  std::string name;
  Stage stage;                // with the n that a run has at most
  std::vector<Index> inputs;  // the layers whose outputs it reads, side by side along the channels
  LayerWeights weights;
  /// Its output, and that of every layer behind it, differs from step to step.
  bool timed = false;
};

struct Graph {
  std::vector<Layer> layers;  // each behind its inputs; the last one's output is the network's
  Index steps = 1;

  /// Whether layer i reads what differs from step to step; all its inputs do, or none.
  bool reads_timed(std::size_t i) const;
  /// Layers [first, first + count) read each other in a row, and nobody else reads between them.
  bool in_a_row(std::size_t first, std::size_t count) const;
};

/// The layers of a text that was parsed, each for `batch` images.
Graph graph_of(const NetworkText& text, std::vector<LayerWeights> weights, Index batch);

}  // namespace convoy::network
