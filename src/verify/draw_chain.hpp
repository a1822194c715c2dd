// Drawing: legal chains that the kernels of several stages take, and inputs for any chain.
#pragma once

#include <optional>
#include <vector>

#include "core/chain.hpp"
#include "core/kernel.hpp"
#include "verify/draw.hpp"

namespace convoy::verify {

/// A legal chain of at most 3 million multiply-adds a step. CPU: spiking layers with constants, on
/// u8 images or spikes, with or without a mean. GPU: a convolution of f16 or bf16 and a 1x1 stage,
/// or spiking layers on u8 images.
/// A few have what the kernels refuse.
OwnedChain draw_chain(Random& random, DeviceKind device = DeviceKind::cpu);
/// The same layers, with another n and biases here and there: of the same epilogue and tails.
OwnedChain vary(const Chain& chain, Random& random);

/// What a run reads, and what the plan is given before.
struct ChainInputs {
  OwnedChain chain;
  Tensor x;                           // of the first stage, dense in its layout
  std::vector<Tensor> weights, bias;  // of each stage; bias: empty where it has none
  Tensor values;  // of u8 images in a chain of constants: x' of each pixel value, [C][256]

  /// One element a stage; bias only where the kernel folds it.
  std::vector<Parameters> parameters(const KernelFacts& facts) const;
  /// x as the first stage by itself reads it: of pixels their values, f32.
  Tensor plain_x() const;
};

/// Inputs that the seed and the chain determine. Integers are small; whether sums of the later
/// stages are exact shows when the oracle has summed them.
ChainInputs draw_inputs(const Chain& chain, Data data, std::uint64_t seed);

/// Inputs that bring membranes exactly to their thresholds: black and white pixels, whose values
/// are multiples of a power of two as event frames and binarised images have them, and weights and
/// biases that are such multiples, as quantised networks have them. Where `sums_are_exact` the
/// spikes are no matter of rounding, whatever the order of the sums.
ChainInputs draw_ties(const Chain& chain, std::uint64_t seed);

/// n images, image i of which is image (first + i) % N of `inputs`, which has N.
ChainInputs repeat_images(const ChainInputs& inputs, Index first, Index n);

}  // namespace convoy::verify
