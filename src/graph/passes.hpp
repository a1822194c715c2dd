// The passes, in the order in which a network goes through them. Each takes a graph that verify()
// accepts and gives one; each may be left out of a test, and the same pass again changes nothing.
#pragma once

#include <functional>

#include "graph/graph.hpp"

namespace convoy::graph {

/// Folds each batch-norm into the weights of the convolution or linear layer before it, if no other
/// node reads that layer. Any other batch-norm becomes a convolution of each channel by itself.
/// Throws Error if the weights are no longer finite.
Graph fold_batchnorm(Graph graph);

/// Columns of linear layers go from PyTorch's order (C,H,W) into memory's (H,W,C), so that
/// flattening an image moves nothing. Throws Error for a flattened image in PyTorch's order that
/// another operator reads.
Graph order_columns(Graph graph);

/// Whether one kernel runs the stage. `fuse` asks before it adds a rider.
using Serves = std::function<bool(const Stage&)>;

/// Each convolution or linear layer takes in the activation behind it, then the pool, as far as
/// nobody else reads what lies between and `serves` agrees. Every node that is a stage becomes a
/// `Fused` one. No pass after it changes arithmetic.
Graph fuse(Graph graph, const Serves& serves);

/// All of them.
Graph optimised(Graph graph, const Serves& serves);

}  // namespace convoy::graph
