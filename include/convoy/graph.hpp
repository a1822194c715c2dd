/// @file
/// Networks that are built in memory, operator by operator: several inputs and outputs, branches,
/// concatenations and slices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convoy/network.hpp"

namespace convoy {

/// @cond
namespace graph {
struct Graph;
}
/// @endcond

/// Builds a Network out of operators.
///
///     GraphBuilder g;
///     const auto x = g.input("x", DType::f32, {32, 32, 3});
///     const auto a = g.activation(g.convolution(x, w1, b1, {.pad = 1}), relu);
///     const auto b = g.activation(g.convolution(a, w2, b2, {.pad = 1}), relu);
///     g.output("y", g.max_pool(g.concat({a, b}), max_pool(2)));
///     const Network network = g.build();
///     network.run({{"x", images}}, {{"y", result}}, {}).or_throw();
///
/// Each function appends an operator and returns the value that it gives. It copies the parameters
/// that it is given, which are on the host and f32, f16 or bf16, with any strides. It throws Error
/// that names the operand that was found and the expected one, and then appends nothing. The
/// network fuses a convolution or linear layer with the activation and the pool that follow, if
/// nothing else reads the values between them.
///
/// `name`, the last argument of each operator, is free text such as "layer1/conv:0", which no other
/// operator has. Messages, describe() and LayerReport::name show it; a layer has the name of its
/// convolution or linear layer. Empty: the operator's word and a number, "convolution3".
///
/// A builder is used by one thread at a time.
class CONVOY_API GraphBuilder {
 public:
  /// A value: an input, or the result of an operator. It belongs to the builder that returned it.
  struct Value {
    std::size_t id = 0;         ///< its number in the builder
    std::uint64_t builder = 0;  ///< the builder that returned it
  };
  /// How a convolution steps over its input; see the fields of Stage with these names.
  struct ConvolutionOptions {
    Extent stride{1};     ///< distance between two positions of the filter
    Padding pad{0};       ///< zeros around x
    Extent dil{1};        ///< distance between two elements of the filter
    Index groups = 1;     ///< groups of channels that are convolved apart
    bool strict = false;  ///< only algorithms that are exact on small integers
  };

  /// steps: T, the number of time steps of all neurons, 1 to 65536.
  explicit GraphBuilder(Index steps = 1);
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&&) noexcept;             ///< the source is empty afterwards
  GraphBuilder& operator=(GraphBuilder&&) noexcept;  ///< the source is empty afterwards

  /// An input of the network: images {H,W,C} or vectors {C}. A run gives [N,H,W,C] or [N,C].
  Value input(const std::string& name, DType dtype, const std::vector<Index>& axes);
  /// (u/255 - mean)/std of u8 pixels, or (x - mean)/std of f32 ones, as f32. Each of mean and std
  /// has one number, one per channel, or none (mean 0, std 1).
  Value normalise(Value x, const std::vector<float>& mean, const std::vector<float>& std,
                  const std::string& name = {});
  /// x with the filters w [K,R,S,C/groups] and, if not empty, the bias [K].
  Value convolution(Value x, const ConstTensorView& w, const ConstTensorView& bias,
                    const ConvolutionOptions& options, const std::string& name = {});
  /// A vector x with the weights w [K,C] and, if not empty, the bias [K].
  Value linear(Value x, const ConstTensorView& w, const ConstTensorView& bias,
               const std::string& name = {});
  /// (x - mean)/sqrt(variance + eps)*gamma + beta; all [C].
  Value batch_norm(Value x, const ConstTensorView& gamma, const ConstTensorView& beta,
                   const ConstTensorView& mean, const ConstTensorView& variance, float eps = 1e-5F,
                   const std::string& name = {});
  /// The activation of each element, or a neuron's spikes in each time step. soft: see Stage.
  Value activation(Value x, const Activation& act, bool soft = false, const std::string& name = {});
  /// A name in the place of `soft` would count as true.
  Value activation(Value x, const Activation& act, const char* name) = delete;
  /// The maximum of each window of an image.
  Value max_pool(Value x, const Pool& pool, const std::string& name = {});
  /// Values of equal height and width, side by side along the channels.
  Value concat(const std::vector<Value>& values, const std::string& name = {});
  /// The channels [first, first + count).
  Value slice(Value x, Index first, Index count, const std::string& name = {});
  /// An image as a vector; in PyTorch's order (C,H,W) if `channels_first`, then only linear layers
  /// may read it, else in the order of memory (H,W,C).
  Value flatten(Value x, bool channels_first = true, const std::string& name = {});
  /// A name in the place of `channels_first` would count as true.
  Value flatten(Value x, const char* name) = delete;
  /// The mean over the time steps of a value that a neuron made timed, in f32.
  Value mean_of_steps(Value x, const std::string& name = {});
  /// Makes the value an output of the network. An operator may have the name of an input or an
  /// output.
  void output(const std::string& name, Value x);

  /// The operators so far as text, a line each.
  std::string describe() const;
  /// The network. The builder may go on afterwards. Throws Error as Network's constructors do, and
  /// if there is no output.
  Network build(const NetworkOptions& options = {}) const;

 private:
  friend const graph::Graph& graph_of(const GraphBuilder& builder);
  struct Impl;
  Impl& impl() const;  // throws Error if the builder was moved from
  std::unique_ptr<Impl> impl_;
};

}  // namespace convoy
