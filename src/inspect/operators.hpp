// The operators of a network, its graph before `fuse` and behind it: a layer `conv1
// ...+bias+if(1)+max2` is a convolution, a neuron and a pool. Each is a stage, so that a plan and
// the oracle can compute it alone.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "network/load.hpp"

namespace convoy::inspect {

enum class OperatorKind : std::uint8_t {
  conv,        // sums with bias; of a 1x1 stage on a 1x1 image
  linear,      // it is a linear layer
  activation,  // without time: ReLU and its like
  neuron,
  pool,
  mean,  // over the time steps, behind the last layer. No stage
};
std::string_view to_text(OperatorKind kind);

struct Operator {
  std::string name;
  OperatorKind kind = OperatorKind::conv;
  /// Of one image. A neuron, an activation and a pool have a 1x1 filter of ones for each channel,
  /// which changes no value.
  Stage stage;
  std::vector<float> w, bias;
  std::vector<std::size_t> inputs;  // operators, their channels side by side; empty: the images
  std::size_t gives = 0;            // the operator whose output it gives; itself, unless a block
  bool reads_timed = false;         // its input differs from step to step, and
  bool timed = false;               // its output
};

struct Operators {
  NetworkText text;
  /// In the network's order, each behind its inputs. The sums of a layer have the layer's name;
  /// what follows them is called after what it does, with a number that counts in the network:
  /// relu (of relu6 too), clip, leaky, if, lif, pool. Numbers whose name a layer has are left out.
  std::vector<Operator> all;
  /// A layer each, in one stage as it is written: fuse1, fuse2, ...
  std::vector<Operator> blocks;
  std::string mean;  // the name of the mean over the steps; empty where there is none

  Index steps() const { return text.steps; }
  /// Operators of a block: [first_of(block), block.gives].
  std::size_t first_of(std::size_t block) const {
    return block == 0 ? 0 : blocks[block - 1].gives + 1;
  }
  /// The neuron whose spikes operator i gives: itself, or the one before a pool.
  std::size_t neuron_of(std::size_t i) const {
    const std::size_t before = all[i].kind == OperatorKind::pool ? all[i].inputs.front() : i;
    return all[before].kind == OperatorKind::neuron ? before : none;
  }
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
};

Operators operators_of(network::Model model);

/// The stage of an operator for n images. Steps without a neuron are further images.
Stage stage_for(const Operator& op, Index steps, Index n);

/// [T,N,H,W,C] of the operator's output; T is 1 where that is the same in each step.
std::vector<Index> output_shape(const Operator& op, Index steps, Index n);

}  // namespace convoy::inspect
