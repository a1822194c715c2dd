// The type and axes of what each operator gives.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>

#include "convoy/error.hpp"
#include "core/printable.hpp"
#include "core/size.hpp"
#include "graph/graph.hpp"
#include "graph/stage_of.hpp"

namespace convoy::graph {
namespace {

Error not_taken(const Node& node, std::size_t operand, const Value& found,
                const std::string& expected) {
  return Error(fmt::format("{}: operand {} is {} {}, expected {}", word_of(node.op), operand + 1,
                           to_text(found.type), shape_text(found), expected));
}

void expect_operands(const Node& node, std::size_t least, std::size_t most) {
  if (node.in.size() >= least && node.in.size() <= most) return;
  throw Error(
      fmt::format("{}: found {} operands, expected {}", word_of(node.op), node.in.size(),
                  least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most)));
}

/// Operand i must be a constant of these axes; -1: any size.
void expect_constant(const Graph& graph, const Node& node, std::size_t i,
                     const std::vector<Index>& axes) {
  const Value& value = graph.input(node, i);
  bool fits = value.constant && value.axes.size() == axes.size();
  for (std::size_t a = 0; fits && a < axes.size(); ++a)
    fits = axes[a] < 0 || value.axes[a] == axes[a];
  if (!fits)
    throw not_taken(node, i, value,
                    fmt::format("a constant f32[{}] (-1: any size)", fmt::join(axes, ",")));
}

void expect_image(const Node& node, const Value& x) {
  if (!x.is_image()) throw not_taken(node, 0, x, "an image [N,H,W,C]");
}

/// What a stage gives; throws for a stage that is not legal.
Value of_stage(const Graph& graph, const Node& node) {
  const Value& x = graph.input(node, 0);
  const Stage stage = stage_of(graph, node).value_or(Stage{}).normalised();
  if (const std::vector<std::string> wrong = problems(stage); !wrong.empty())
    throw Error(fmt::format("{} on an input of {}x{}x{}: {}", word_of(node.op), x.h(), x.w(),
                            x.channels(), fmt::join(wrong, "; ")));
  const Shapes shapes = shapes_of(stage);
  Value y;
  y.type = stage.output_dtype();
  y.timed = x.timed || stage.act.is_neuron();
  if (x.is_image())
    y.axes = {shapes.out_h, shapes.out_w, stage.k};
  else
    y.axes = {stage.k};
  return y;
}

Value like(const Value& x) {
  Value y;
  y.type = x.type;
  y.axes = x.axes;
  y.timed = x.timed;
  return y;
}

Value infer_normalise(const Node& node, const Value& x) {
  const auto& op = *node.as<Normalise>();
  if (x.type != DType::u8 && x.type != DType::f32) throw not_taken(node, 0, x, "u8 or f32 images");
  for (const auto* numbers : {&op.mean, &op.std}) {
    const char* const name = numbers == &op.mean ? "mean" : "std";
    const auto count = static_cast<Index>(numbers->size());
    if (count > 1 && count != x.channels())
      throw Error(fmt::format("{} has {} numbers, expected one or {} (the channels)", name, count,
                              x.channels()));
    for (const float number : *numbers)
      if (!std::isfinite(number))
        throw Error(fmt::format("{} {}: expected a finite number", name, number));
  }
  for (const float number : op.std)
    if (number == 0) throw Error("found std 0, expected another number: values are divided by it");
  Value y = like(x);
  y.type = DType::f32;
  return y;
}

Value infer_concat(const Graph& graph, const Node& node) {
  expect_operands(node, 2, 1000);
  const Value& first = graph.input(node, 0);
  Value y = like(first);
  Size channels;
  for (std::size_t i = 0; i < node.in.size(); ++i) {
    const Value& x = graph.input(node, i);
    if (x.constant || x.type != first.type || x.h() != first.h() || x.w() != first.w() ||
        x.is_image() != first.is_image() || x.timed != first.timed)
      throw Error(
          fmt::format("concat: {} is {} {}, {} is {} {}: expected equal types, sizes and "
                      "steps, because their channels are concatenated",
                      printable(first.name), to_text(first.type), shape_text(first),
                      printable(x.name), to_text(x.type), shape_text(x)));
    channels += x.channels();
  }
  if (!channels.fits((Index{1} << 31) - 1))
    throw Error("concat: found 2^31 channels or more, expected fewer");
  y.axes.back() = channels.value();
  return y;
}

Value infer_slice(const Node& node, const Value& x) {
  const auto& op = *node.as<Slice>();
  if (op.first < 0 || op.count < 1 || op.first > x.channels() - op.count)
    throw Error(fmt::format("slice: channels [{}, {}) of {}, expected at least one, inside",
                            op.first, op.first + op.count, x.channels()));
  Value y = like(x);
  y.axes.back() = op.count;
  return y;
}

Value infer_flatten(const Node& node, const Value& x) {
  expect_image(node, x);
  const Size all = Size(x.axes[0]) * x.axes[1] * x.axes[2];
  if (!all.fits((Index{1} << 31) - 1))
    throw Error(fmt::format("flatten: found {}x{}x{} values, expected fewer than 2^31", x.axes[0],
                            x.axes[1], x.axes[2]));
  Value y = like(x);
  y.axes = {all.value()};
  return y;
}

}  // namespace

Value infer(const Graph& graph, const Node& node) {
  if (node.in.empty()) throw Error(fmt::format("{}: found no operand", word_of(node.op)));
  const Value& x = graph.input(node, 0);
  if (x.constant) throw not_taken(node, 0, x, "a value that depends on the images");
  if (x.type == DType::u8 && !node.as<Normalise>())
    throw not_taken(node, 0, x, "f32, f16 or bf16: normalise u8 images first");
  const bool vectors_too = node.as<Linear>() || node.as<Activate>() || node.as<Fused>();
  if (node.as<Convolution>()) {
    expect_operands(node, 2, 3);
    expect_image(node, x);
    const Index groups = node.as<Convolution>()->groups;
    if (groups < 1 || x.channels() % groups != 0)
      throw Error(fmt::format("convolution: {} groups of {} channels, expected a divisor", groups,
                              x.channels()));
    expect_constant(graph, node, 1, {-1, -1, -1, x.channels() / groups});
  } else if (node.as<Linear>()) {
    expect_operands(node, 2, 3);
    if (x.is_image()) throw not_taken(node, 0, x, "a vector [N,C]: flatten it first");
    expect_constant(graph, node, 1, {-1, x.channels()});
  }
  if (node.as<Convolution>() || node.as<Linear>()) {
    if (node.in.size() > 2) expect_constant(graph, node, 2, {graph.input(node, 1).axes[0]});
    return of_stage(graph, node);
  }
  if (node.as<Fused>()) {
    expect_operands(node, 2, 3);
    return of_stage(graph, node);
  }
  if (node.as<BatchNorm>()) {
    expect_operands(node, 5, 5);
    for (std::size_t i = 1; i < 5; ++i) expect_constant(graph, node, i, {x.channels()});
    return like(x);
  }
  if (node.as<Concat>()) return infer_concat(graph, node);
  expect_operands(node, 1, 1);
  if (node.as<Normalise>()) return infer_normalise(node, x);
  if (node.as<Slice>()) return infer_slice(node, x);
  if (node.as<Flatten>()) return infer_flatten(node, x);
  if (node.as<MeanOfSteps>()) {
    if (!x.timed) throw not_taken(node, 0, x, "a value with time steps, as a neuron gives it");
    Value y = like(x);
    y.timed = false;
    y.type = DType::f32;
    return y;
  }
  if (!vectors_too) expect_image(node, x);
  return of_stage(graph, node);  // an activation or a pool
}

}  // namespace convoy::graph
