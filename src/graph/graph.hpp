// A network as a graph: values, and the nodes that compute them.
//
// A reader (network.txt, GraphBuilder) makes a graph of plain operators. Passes, each a function
// from a graph to a graph in a file of its own, rewrite it until every node is one that the program
// runs. A graph holds no memory for images and no kernel. docs/contribute/graph.md follows one
// small network through all passes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::graph {

/// The place of a value in Graph::values.
using ValueId = std::size_t;
/// The place of a node in Graph::nodes.
using NodeId = std::size_t;
inline constexpr std::size_t no_id = static_cast<std::size_t>(-1);

/// A tensor that a node reads or writes.
struct Value {
  std::string name;         // free text, unique among the values of a graph
  DType type = DType::f32;  // of the elements
  /// A constant: all axes. Else the axes of one image in one time step, {H,W,C} of an image or {C}
  /// of a vector; a run has [N] in front of them, and [T,N] if the value is timed.
  std::vector<Index> axes;
  bool timed = false;  // it differs from time step to time step
  /// Parameters, in the order of `axes`; null: the value is computed, or an input of the graph.
  std::shared_ptr<const std::vector<float>> constant;

  bool is_image() const { return axes.size() == 3; }
  Index channels() const { return axes.back(); }
  /// The height and width of an image. A vector counts as an image of one pixel.
  Index h() const { return is_image() ? axes[0] : 1; }
  Index w() const { return is_image() ? axes[1] : 1; }
  /// Elements of one image in one step, or of a constant.
  Index elements() const;
};

// The operators. What a node reads, in this order, stands behind each.

/// (u/255 - mean)/std of u8 pixels, (x - mean)/std of f32 ones, as f32; x. One number per channel.
struct Normalise {
  std::vector<float> mean, std;
  bool operator==(const Normalise&) const = default;
};
/// x, weights [K,R,S,C/groups], and a bias [K] if there is one.
struct Convolution {
  Extent stride{1};
  Padding pad{0};
  Extent dil{1};
  Index groups = 1;
  bool strict = false;  // as Stage::strict
  bool operator==(const Convolution&) const = default;
};
/// x, a vector; weights [K,C], and a bias [K] if there is one.
struct Linear {
  bool strict = false;
  bool operator==(const Linear&) const = default;
};
/// x, and weight, bias, running mean and running variance [C] each.
struct BatchNorm {
  float eps = 1e-5F;
  bool operator==(const BatchNorm&) const = default;
};
/// x. A neuron fires in each time step; a value that is not timed is held, the same in each step.
struct Activate {
  Activation act;
  bool soft = false;  // as Stage::soft
  bool operator==(const Activate&) const = default;
};
/// x, an image.
struct MaxPool {
  Pool pool;
  bool operator==(const MaxPool&) const = default;
};
/// Two or more values of equal height and width, put side by side along the channels.
struct Concat {
  bool operator==(const Concat&) const = default;
};
/// x: its channels [first, first + count).
struct Slice {
  Index first = 0, count = 0;
  bool operator==(const Slice&) const = default;
};
/// x, an image, as a vector.
struct Flatten {
  /// In PyTorch's order (C,H,W); else in memory's own (H,W,C), which moves nothing.
  bool channels_first = true;
  bool operator==(const Flatten&) const = default;
};
/// x, timed: the mean over the time steps, in f32.
struct MeanOfSteps {
  bool operator==(const MeanOfSteps&) const = default;
};
/// x, weights [K,R,S,C/groups], and a bias [K] if the stage has one: what `fuse` makes.
struct Fused {
  Stage stage;  // of one image; `hold` and `t` as the graph's
  bool operator==(const Fused&) const = default;
};

using Operator = std::variant<Normalise, Convolution, Linear, BatchNorm, Activate, MaxPool, Concat,
                              Slice, Flatten, MeanOfSteps, Fused>;
/// The operator's word: "convolution", "max-pool".
std::string_view word_of(const Operator& op);
/// The operator with its attributes: "convolution stride2 pad1".
std::string to_text(const Operator& op);

struct Node {
  Operator op = {};
  std::string name = {};         // free text, unique among the nodes of a graph
  std::vector<ValueId> in = {};  // what it reads
  ValueId out = no_id;           // what it writes
  std::string origin = {};       // where it was written down, "line 4"; empty: in memory
  /// The names of the nodes that a pass joined into this one, in their order.
  std::vector<std::string> parts = {};

  /// The operator as T; null: it is another one.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&op);
  }
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;       // each behind those whose values it reads
  std::vector<ValueId> inputs;   // given to a run
  std::vector<ValueId> outputs;  // what a run gives
  Index steps = 1;               // T, of neurons

  ValueId add(Value value);
  /// Appends the node; its value gets the type and axes that `infer` gives it. Throws Error.
  ValueId add(Node node, std::string value_name);
  /// A constant in f32.
  ValueId add_constant(std::string name, std::vector<Index> axes, std::vector<float> numbers);

  const Value& output(const Node& node) const { return values[node.out]; }
  const Value& input(const Node& node, std::size_t i) const { return values[node.in[i]]; }
  const std::vector<float>& constant(ValueId id) const { return *values[id].constant; }
  bool is_output(ValueId id) const;
  /// The name, with apostrophes behind it if a value has it already: for values that a pass or a
  /// reader makes. Names of users are free text, so any name may be taken.
  std::string free_name(std::string name) const;

  /// Throws Error that names the mistake: a value that is read before it is computed, a value that
  /// two nodes compute or none, a type or shape other than the operator's result, or two equal
  /// names. Every pass ends with it.
  void verify() const;
};

/// The producer and the readers of each value. A changed graph needs new ones.
struct Links {
  explicit Links(const Graph& graph);
  std::vector<NodeId> producer;            // no_id: an input or a constant
  std::vector<std::vector<NodeId>> users;  // a node that reads a value twice stands there twice
  /// The only node that reads the value, which is no output of the graph; else no_id.
  NodeId only_user(const Graph& graph, ValueId id) const;
};

/// The type and axes of what the node gives. Throws Error that says what the operator does not
/// take, without naming the node.
Value infer(const Graph& graph, const Node& node);

/// The same graph without nodes that no output needs and values that nothing names. Inputs stay.
Graph without_dead(Graph graph);

/// A line per input, node and output, as network.txt and people read it.
std::string to_text(const Graph& graph);

/// "1x28x28x1" of one image: [T,]H,W,C.
std::string shape_text(const Value& value);

}  // namespace convoy::graph
