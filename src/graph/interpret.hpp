// What a graph means: each node by the oracle, or by a loop that reads like the definition. Slow on
// purpose. Passes are tested by it, `check` and `dump` take networks apart by it.
#pragma once

#include <vector>

#include "convoy/tensor.hpp"
#include "core/threads.hpp"
#include "graph/graph.hpp"
#include "reference/reference.hpp"

namespace convoy::graph {

/// A value of n images: f32 on the host, [T,N,H,W,C]; T is 1 if the value is not timed, H and W are
/// 1 of a vector. It holds what the value's type holds exactly.
using Interpreted = Tensor;

std::vector<Index> interpreted_shape(const Graph& graph, const Value& value, Index n);

/// What node `node` gives for what it reads. charged, if not null: of a neuron its membrane before
/// it fires. Throws Error.
Interpreted interpret(const Graph& graph, const Node& node,
                      const std::vector<const Interpreted*>& read, Threads& threads,
                      reference::Sum sum = reference::Sum::exact, Tensor* charged = nullptr);

/// Every value of the graph for inputs [N,H,W,C] or [N,C] of the types of graph.inputs, on the
/// host, by the number of the value; empty tensors of constants.
std::vector<Interpreted> interpret(const Graph& graph, const std::vector<ConstTensorView>& inputs,
                                   Threads& threads, reference::Sum sum = reference::Sum::exact);

}  // namespace convoy::graph
