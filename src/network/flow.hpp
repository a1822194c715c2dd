// The rules of a network that hold however it was written down, as text or by hand: names, sizes,
// and what each layer takes over from the one before it.
#pragma once

#include "convoy/network.hpp"

namespace convoy::network {

inline constexpr std::size_t most_layers = 1000;
inline constexpr Index most_steps = 65536;

/// What a line of the network gives to those that read it.
struct Output {
  Index h = 0, w = 0, c = 0;
  bool flat = false;   // a vector: who reads it is linear
  bool timed = false;  // differs from step to step: a neuron came before
  bool read = false;
};

/// The outputs of the lines so far. Line 0 is the input, line i + 1 is layers[i].
struct Flow {
  std::vector<Output> lines;
  const Output& last() const { return lines.back(); }
};

/// The number in `layers` of what layer i reads first; -1: the input.
Index first_input(const NetworkText& network, std::size_t i);

// Each throws Error that says what is wrong, without a place.

/// The images' type, sizes, means and deviations; what reaches the first layer.
Flow input_of(const NetworkText& network);
/// That of a layer, or of a batch-norm: any text that network.txt can hold. Files that are named
/// after it have core/file_name.hpp's form of it.
void check_name(std::string_view name);
/// Fills in what the layer takes over from `flow`, appends it, and moves on behind it.
void add_layer(NetworkText& network, NetworkLayer layer, Flow& flow);
/// Whether the last layer gives outputs, and each other line is read.
void check_end(const NetworkText& network, const Flow& flow);

/// A network that was written by hand, with everything filled in. What is there already is filled
/// in anew. Throws Error that names the layer.
NetworkText completed(NetworkText network);

}  // namespace convoy::network
