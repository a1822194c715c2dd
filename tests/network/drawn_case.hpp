// A drawn network with seven images, what the interpreter makes of them, and runs of its program.
#pragma once

#include <string>
#include <vector>

#include "convoy/network.hpp"
#include "draw_graph.hpp"
#include "graph/graph.hpp"

namespace convoy {

using Numbers = std::vector<float>;

struct DrawnCase {
  explicit DrawnCase(std::uint64_t number, const DrawOptions& options);

  const graph::Graph& plain() const;
  /// The graph as text; with its number, so that a failure can be repeated.
  std::string text() const;
  /// The outputs of a graph by the interpreter, all seven images.
  std::vector<Numbers> interpreted(const graph::Graph& graph) const;
  /// The outputs of a run of n images: image i is image i % 7 of the case. Tensors are on `memory`.
  std::vector<Numbers> run(const Network& network, Index n, Device memory = {},
                           Stream stream = {}) const;

  static constexpr Index images = 7;
  std::uint64_t number;
  DrawnGraph drawn;
  std::vector<Numbers> inputs;
};

/// What a run of n images must give, by the outputs of the seven.
std::vector<Numbers> repeated(const Network& network, const std::vector<Numbers>& seven, Index n);

bool same_bits(const std::vector<Numbers>& a, const std::vector<Numbers>& b);

/// Of runs on `device`: one thread, and parts of at most 16 images.
NetworkOptions in_parts(Device device = {});

/// Runs of 1, 7 and 64 images from eight threads at once, three of each thread: how many have other
/// bits than `seven` says, or fail. Each thread has a stream of its own on the network's device.
int wrong_runs_at_once(const DrawnCase& one, const Network& network,
                       const std::vector<Numbers>& seven, Device device = {}, Device memory = {});

/// How many graphs a test draws; the environment variable CONVOY_GRAPHS asks for another number.
std::uint64_t graphs_to_draw(std::uint64_t by_default);

}  // namespace convoy
