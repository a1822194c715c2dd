// Graphs as text, for people and for tests.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "core/overloaded.hpp"
#include "core/printable.hpp"
#include "core/stage_text.hpp"
#include "graph/graph.hpp"

namespace convoy::graph {
namespace {

std::string text_of(Extent e) {
  return e.h == e.w ? fmt::format("{}", e.h) : fmt::format("{}x{}", e.h, e.w);
}
std::string text_of(const Padding& p) {
  if (p == Padding(p.top)) return fmt::format("{}", p.top);
  if (p.top == p.bottom && p.left == p.right) return fmt::format("{}x{}", p.top, p.left);
  return fmt::format("{}x{}x{}x{}", p.top, p.left, p.bottom, p.right);
}

std::string attributes_of(const Convolution& op) {
  std::string text;
  if (!(op.stride == Extent(1))) text += " stride" + text_of(op.stride);
  if (!(op.pad == Padding(0))) text += " pad" + text_of(op.pad);
  if (!(op.dil == Extent(1))) text += " dil" + text_of(op.dil);
  if (op.groups != 1) text += fmt::format(" groups{}", op.groups);
  return text + (op.strict ? " strict" : "");
}

/// The riders of a stage that has nothing else: "relu6", "max3s2p1".
std::string riders_of(const Stage& riders) {
  const std::string text = to_text(riders);
  const std::size_t at = text.find('+');
  return at == std::string::npos ? std::string() : text.substr(at + 1);
}

std::string attributes_of(const Activate& op) {
  Stage stage{.h = 1, .c = 1, .k = 1, .r = 1, .act = op.act, .soft = op.soft};
  return " " + riders_of(stage);
}

std::string attributes_of(const MaxPool& op) {
  // Large enough for any window.
  const Index h = (op.pool.window.h - 1) * op.pool.dil.h + 1,
              w = (op.pool.window.w - 1) * op.pool.dil.w + 1;
  return " " + riders_of({.h = h, .w = w, .c = 1, .k = 1, .r = 1, .s = 1, .pool = op.pool});
}

}  // namespace

std::string_view word_of(const Operator& op) {
  return std::visit(
      Overloaded{[](const Normalise&) { return "normalise"; },
                 [](const Convolution&) { return "convolution"; },
                 [](const Linear&) { return "linear"; },
                 [](const BatchNorm&) { return "batch-norm"; },
                 [](const Activate& a) { return a.act.is_neuron() ? "neuron" : "activation"; },
                 [](const MaxPool&) { return "max-pool"; }, [](const Concat&) { return "concat"; },
                 [](const Slice&) { return "slice"; }, [](const Flatten&) { return "flatten"; },
                 [](const MeanOfSteps&) { return "mean over the steps"; },
                 [](const Fused&) { return "stage"; }},
      op);
}

std::string to_text(const Operator& op) {
  const std::string attributes = std::visit(
      Overloaded{
          [](const Normalise& n) {
            return fmt::format(" mean({}) std({})", fmt::join(n.mean, ","), fmt::join(n.std, ","));
          },
          [](const Convolution& c) { return attributes_of(c); },
          [](const Linear& l) { return std::string(l.strict ? " strict" : ""); },
          [](const BatchNorm& b) { return fmt::format(" eps({:g})", b.eps); },
          [](const Activate& a) { return attributes_of(a); },
          [](const MaxPool& p) { return attributes_of(p); },
          [](const Concat&) { return std::string(); },
          [](const Slice& s) { return fmt::format(" [{},{})", s.first, s.first + s.count); },
          [](const Flatten& f) { return std::string(f.channels_first ? " c,h,w" : " h,w,c"); },
          [](const MeanOfSteps&) { return std::string(); },
          [](const Fused& f) { return " " + to_text(f.stage); }},
      op);
  return std::string(word_of(op)) + attributes;
}

std::string shape_text(const Value& value) {
  return fmt::format("{}{}", value.timed ? "T*" : "", fmt::join(value.axes, "x"));
}

std::string to_text(const Graph& graph) {
  const auto described = [&](ValueId id) {
    const Value& value = graph.values[id];
    return fmt::format("{}: {} {}", printable(value.name), to_text(value.type), shape_text(value));
  };
  std::string text;
  if (graph.steps > 1) text += fmt::format("steps {}\n", graph.steps);
  for (const ValueId id : graph.inputs) text += fmt::format("input {}\n", described(id));
  for (const Node& node : graph.nodes) {
    std::vector<std::string> read;
    for (const ValueId id : node.in)
      if (!graph.values[id].constant) read.push_back(printable(graph.values[id].name));
    text += fmt::format("{} = {} of {}\n", described(node.out), to_text(node.op),
                        fmt::join(read, ", "));
  }
  for (const ValueId id : graph.outputs)
    text += fmt::format("output {}\n", printable(graph.values[id].name));
  return text;
}

}  // namespace convoy::graph
