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

struct DrawOptions {
  bool strict = true;       ///< of every convolution
  Index operators = 14;     ///< at most so many are drawn
  DType type = DType::f32;  ///< of the inputs. 16 bits: few channels of a filter have a weight
};

/// The graph of that number.
DrawnGraph draw_graph(std::uint64_t number, const DrawOptions& options);

}  // namespace convoy
