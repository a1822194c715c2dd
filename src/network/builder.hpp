// What a GraphBuilder has built so far, for the house itself.
#pragma once

#include "convoy/graph.hpp"
#include "graph/graph.hpp"

namespace convoy {

/// The graph of plain operators.
const graph::Graph& graph_of(const GraphBuilder& builder);

}  // namespace convoy
