// Random networks: branches that meet, slices, several inputs and outputs, values that many read,
// and dead ends. All numbers are small integers, so that every order of sums gives the same bits.
#pragma once

#include "convoy/graph.hpp"
#include "verify/random.hpp"

namespace convoy {

struct DrawnGraph {
  GraphBuilder builder;
  std::vector<DType> input_types;
  std::vector<std::vector<Index>> input_axes;
};

/// The graph of that number, of at most so many operators drawn. Every convolution is strict if
/// `strict`.
DrawnGraph draw_graph(std::uint64_t number, bool strict, Index operators = 14);

}  // namespace convoy
