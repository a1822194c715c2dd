// Chains: stages in a row, each of which reads what the one before it wrote. A kernel runs a whole
// chain; most kernels run chains of one.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy {

/// What is true of a chain beside its stages.
struct ChainFacts {
  /// Bias and the values of u8 pixels are constants, given with the weights: kernels may fold them
  /// in (`KernelFacts::folds`). Else they are operands of each run.
  bool constants = false;
  /// x of the first stage, f32, holds 0 and 1 only: spikes.
  bool binary = false;
  /// Time steps that x of the first stage has, [T,N,H,W,C]; 1: none, or as its neuron says.
  Index x_steps = 1;
  /// The last stage has no neuron, and y is the mean of its outputs over the T steps before it.
  bool mean = false;
  bool operator==(const ChainFacts&) const = default;
};

/// A view of one or more stages, all of the same n. Stage i+1 reads the pooled output of stage i,
/// either as it is or, when it is a linear layer (1x1 on a 1x1 image), flattened in the order H, W,
/// C. Behind a neuron all stages run on every one of its T steps; one without a neuron has t = 1
/// there, as everywhere.
struct Chain : ChainFacts {
  std::span<const Stage> stages;

  Chain(const Stage& stage) : stages(&stage, 1) {}  // NOLINT: a stage is a chain of one
  explicit Chain(std::span<const Stage> stages_) : stages(stages_) {}

  std::size_t size() const { return stages.size(); }
  const Stage& operator[](std::size_t i) const { return stages[i]; }
  const Stage& front() const { return stages.front(); }
  const Stage& back() const { return stages.back(); }

  /// Where only arithmetic that is exact on small integers may be used.
  bool exact() const;
  /// Time steps that the chain runs: those of its input and its neurons, 1 without any.
  Index steps() const;
};

/// Every reason why the chain is not legal, those of its stages included; `gpu` decides the
/// types between the stages. Empty for a legal chain.
std::vector<std::string> problems(const Chain& chain, bool gpu);

/// Throws Error with every problem unless the chain is legal.
void check(const Chain& chain, bool gpu);

/// "STAGE > STAGE": the text of each stage; of one stage its text alone. With constants it begins
/// with "constants > ", where the input is spikes with "spikes > " or "spikes t<T> > "; a mean ends
/// in " > mean".
std::string to_text(const Chain& chain);

/// Whether it is a stage and nothing more: no constants, spikes or mean.
bool is_one_stage(const Chain& chain);

/// Owns the stages of a chain.
struct OwnedChain : ChainFacts {
  std::vector<Stage> stages;
  OwnedChain() = default;
  OwnedChain(const Stage& stage) : stages{stage} {}  // NOLINT: as Chain
  explicit OwnedChain(const Chain& chain)
      : ChainFacts(chain), stages(chain.stages.begin(), chain.stages.end()) {}
  operator Chain() const {  // NOLINT: it is seen as one
    Chain chain(stages);
    static_cast<ChainFacts&>(chain) = *this;
    return chain;
  }
  bool operator==(const OwnedChain&) const = default;
};

/// What to_text wrote. Throws Error for what is no legal chain.
OwnedChain parse_chain(std::string_view text, bool gpu = false);

/// Stages as each is seen by itself: behind T steps one without a neuron has T times the images.
std::vector<Stage> stages_alone(const Chain& chain);

/// The chain with another n in each stage.
OwnedChain with_images(const Chain& chain, Index n);

}  // namespace convoy
