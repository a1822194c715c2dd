#include "network/load.hpp"

#include <fmt/core.h>

#include <map>
#include <set>

#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"
#include "core/stage_text.hpp"
#include "graph/reorder.hpp"
#include "network/flow.hpp"

namespace convoy::network {
namespace {

using graph::ValueId;

/// Names of nodes that are called after what they do.
class Names {
 public:
  explicit Names(const NetworkText& text) {
    for (const NetworkLayer& layer : text.layers)
      if (!layer.flatten) taken_.insert(layer.name);
  }
  std::string next(const std::string& word) {
    for (;;) {
      std::string name = word + std::to_string(++count_[word]);
      if (!taken_.contains(name)) return name;
    }
  }
  /// The word itself, unless a layer is called so.
  std::string alone(const std::string& word) { return taken_.contains(word) ? next(word) : word; }

 private:
  std::set<std::string> taken_;
  std::map<std::string, int> count_;
};

class Reader {
 public:
  Reader(const NetworkText& text, io::ParameterSource& parameters)
      : text_(text), parameters_(parameters), names_(text) {}

  graph::Graph read() {
    graph_.steps = text_.steps;
    last_ = input();
    for (const NetworkLayer& layer : text_.layers) {
      if (layer.flatten)
        last_ = add({.op = graph::Flatten{}, .name = names_.next("flatten"), .in = {last_}}, layer);
      else
        add_layer(layer);
    }
    if (graph_.values[last_].timed && graph_.steps > 1) {
      const std::string mean = names_.alone("mean");
      last_ = graph_.add({.op = graph::MeanOfSteps{}, .name = mean, .in = {last_}}, mean);
    }
    graph_.outputs = {last_};
    graph_.verify();
    return std::move(graph_);
  }

 private:
  ValueId input() {
    graph::Value images;
    images.name = names_.alone("images");
    images.type = text_.dtype;
    images.axes = {text_.h, text_.w, text_.c};
    graph_.inputs = {graph_.add(std::move(images))};
    if (text_.dtype != DType::u8 && text_.mean.empty() && text_.std.empty())
      return graph_.inputs.front();
    const std::string name = names_.alone("normalise");
    return graph_.add(
        {.op = graph::Normalise{text_.mean, text_.std}, .name = name, .in = graph_.inputs}, name);
  }

  /// Appends a node of a layer; its value has the node's name.
  ValueId add(graph::Node node, const NetworkLayer& layer) {
    if (layer.line > 0) node.origin = fmt::format("line {}", layer.line);
    const std::string name = node.name;
    return graph_.add(std::move(node), name);
  }

  ValueId constant(const std::string& name, const std::vector<Index>& shape,
                   const std::string& meaning) {
    // Layers may be called as parameters are, and two layers may share a batch-norm's.
    return graph_.add_constant(graph_.free_name(name), shape,
                               parameters_.read(name, shape, meaning));
  }

  ValueId read_by(const NetworkLayer& layer) {
    if (layer.from.empty()) return last_;
    std::vector<ValueId> all;
    all.reserve(layer.from.size());
    for (const std::string& name : layer.from) all.push_back(given_.at(name));
    if (all.size() == 1) return all.front();
    return add({.op = graph::Concat{}, .name = names_.next("concat"), .in = all}, layer);
  }

  ValueId weights(const NetworkLayer& layer, const graph::Value& x) {
    const Stage& s = layer.stage;
    const std::string name = layer.name + ".weight";
    if (!x.is_image())
      return constant(name, {s.k, x.channels()},
                      fmt::format("{} outputs x {} inputs", s.k, x.channels()));
    const Index channels = s.c / s.groups;
    std::vector<float> w = parameters_.read(
        name, {s.k, channels, s.r, s.s}, fmt::format("k{} r{} s{} c{}", s.k, s.r, s.s, channels));
    return graph_.add_constant(graph_.free_name(name), {s.k, s.r, s.s, channels},
                               graph::pixels_first(w, s.k, channels, s.r * s.s));
  }

  /// The convolution or linear layer, with its batch-norm.
  ValueId sums(const NetworkLayer& layer) {
    const Stage& s = layer.stage;
    const ValueId x = read_by(layer);
    const bool linear = !graph_.values[x].is_image();
    graph::Node node{.name = layer.name};
    if (linear)
      node.op = graph::Linear{s.strict};
    else
      node.op = graph::Convolution{s.stride, s.pad, s.dil, s.groups, s.strict};
    node.in = {x, weights(layer, graph_.values[x])};
    // With a batch-norm the layer's own bias may be missing, as PyTorch users leave it out.
    if (!s.bias && parameters_.has(layer.name + ".bias"))
      throw Error(fmt::format(
          "{}: found a bias, but {} has no +bias. Add +bias to the layer, or remove the parameter.",
          parameters_.name_of(layer.name + ".bias"), printable(layer.name)));
    if (s.bias && (layer.batchnorm.empty() || parameters_.has(layer.name + ".bias")))
      node.in.push_back(constant(layer.name + ".bias", {s.k}, fmt::format("k{}", s.k)));
    const ValueId y = add(std::move(node), layer);
    return layer.batchnorm.empty() ? y : batchnorm(layer, y);
  }

  ValueId batchnorm(const NetworkLayer& layer, ValueId x) {
    graph::Node node{.op = graph::BatchNorm{}, .name = names_.next("batchnorm"), .in = {x}};
    for (const char* what : {"weight", "bias", "running_mean", "running_var"})
      node.in.push_back(constant(layer.batchnorm + "." + what, {layer.stage.k},
                                 fmt::format("k{}", layer.stage.k)));
    for (const float value : graph_.constant(node.in.back()))
      if (value < 0)
        throw Error(
            fmt::format("{}: {} is negative, expected variances. Check that it is the right file.",
                        parameters_.name_of(layer.batchnorm + ".running_var"), value));
    node.origin = parameters_.name_of(layer.batchnorm);
    const std::string name = node.name;
    return graph_.add(std::move(node), name);
  }

  void add_layer(const NetworkLayer& layer) {
    const Stage& s = layer.stage;
    last_ = sums(layer);
    if (!(s.act == no_act))
      last_ = add({.op = graph::Activate{s.act, s.soft},
                   .name = names_.next(word_of(s.act)),
                   .in = {last_}},
                  layer);
    if (s.pool)
      last_ =
          add({.op = graph::MaxPool{*s.pool}, .name = names_.next("pool"), .in = {last_}}, layer);
    given_[layer.name] = last_;
  }

  static std::string word_of(const Activation& act) {
    if (act.kind == Activation::Kind::relu6) return "relu";
    return std::string(name_of(act.kind));
  }

  const NetworkText& text_;
  io::ParameterSource& parameters_;
  Names names_;
  graph::Graph graph_;
  std::map<std::string, ValueId> given_;  // what each layer gives
  ValueId last_ = graph::no_id;
};

// The text of network.txt. A text that parse_network refuses is, from a file, a wrong file.
NetworkText parsed(std::string_view text, const std::string& file) try {
  return parse_network(text, file);
} catch (const Error& error) {
  if (error.code() != StatusCode::invalid_argument) throw;
  throw InvalidFile(error.what());
}

}  // namespace

graph::Graph read_graph(const NetworkText& text, io::ParameterSource& parameters) {
  return Reader(text, parameters).read();
}

Model read_model(const std::string& folder, Index steps) {
  if (folder.empty())
    throw Error("model: found an empty name, expected the folder of network.txt.");
  const std::string file = folder + "/network.txt";
  const auto bytes = read_file(file, std::size_t{1} << 20);  // as parse_network takes
  Model model{parsed(text_of(bytes), file), {}};
  if (steps > 0) {
    model.text.steps = steps;
    model.text = completed(std::move(model.text));  // layers hold the steps too
  }
  io::ParameterFolder parameters(folder);
  model.graph = read_graph(model.text, parameters);
  return model;
}

}  // namespace convoy::network
