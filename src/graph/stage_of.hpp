// The stage that computes what a node computes. One way serves the shapes of values, the oracle and
// the kernels.
#pragma once

#include <optional>

#include "graph/graph.hpp"

namespace convoy::graph {

/// A node as a stage of one image: a convolution or a linear layer without what follows it, what
/// `fuse` made of several, or an activation or a pool as a convolution with one filter of 1x1, a
/// one, for each channel, which changes no value. Empty for nodes that are no stage. Not checked.
std::optional<Stage> stage_of(const Graph& graph, const Node& node);

/// The stage for n images. The steps of a timed value are further images of a stage without a
/// neuron.
Stage for_images(const Graph& graph, const Node& node, Stage stage, Index n);

/// Weights [K,R,S,C/groups] of the node's stage: its own, or `ones`, which this fills with the
/// filters of an activation or a pool.
const std::vector<float>& weights_of(const Graph& graph, const Node& node,
                                     std::vector<float>& ones);
/// [K]; null: the node has no bias.
const std::vector<float>* bias_of(const Graph& graph, const Node& node);

}  // namespace convoy::graph
