#include "graph/interpret.hpp"

#include <algorithm>
#include <cmath>

#include "convoy/error.hpp"
#include "graph/stage_of.hpp"
#include "math/half.hpp"

namespace convoy::graph {
namespace {

ConstTensorView in_shape(const Tensor& dense, const std::vector<Index>& shape) {
  return ConstTensorView::of(dense.data<float>(), shape);
}

Tensor rounded_to_f32(const std::vector<double>& numbers, const std::vector<Index>& shape) {
  Tensor tensor(DType::f32, shape);
  std::transform(numbers.begin(), numbers.end(), tensor.data<float>(),
                 [](double number) { return static_cast<float>(number); });
  return tensor;
}

struct Call {
  const Graph& graph;
  const Node& node;
  const std::vector<const Interpreted*>& read;
  Index n;

  const Tensor& x(std::size_t i = 0) const { return *read[i]; }
  const Value& value(std::size_t i = 0) const { return graph.input(node, i); }
  Tensor made() const {
    return Tensor(DType::f32, interpreted_shape(graph, graph.output(node), n));
  }
};

Tensor stage(const Call& call, Stage single, Threads& threads, reference::Sum sum,
             Tensor* charged) {
  const Stage stage = for_images(call.graph, call.node, single, call.n);
  std::vector<float> ones;
  const std::vector<float>& w = weights_of(call.graph, call.node, ones);
  Operands operands;
  operands.x = in_shape(call.x(), x_shape(stage));
  if (const std::vector<float>* bias = bias_of(call.graph, call.node))
    operands.bias = ConstTensorView::of(bias->data(), {stage.k});
  const reference::Oracle oracle(stage, ConstTensorView::of(w.data(), w_shape(stage)), operands,
                                 sum);
  const reference::Outputs all = oracle.all(threads);
  if (charged && stage.act.is_neuron()) {
    const Shapes shapes = shapes_of(stage);
    *charged = rounded_to_f32(all.pre, {call.graph.steps, call.n, shapes.p, shapes.q, stage.k});
  }
  return rounded_to_f32(all.y, interpreted_shape(call.graph, call.graph.output(call.node), call.n));
}

/// By PyTorch's own operations in fp32.
Tensor normalise(const Call& call) {
  const auto& op = *call.node.as<Normalise>();
  const auto of = [](const std::vector<float>& all, std::size_t channel, float missing) {
    return all.empty() ? missing : all[all.size() == 1 ? 0 : channel];
  };
  Tensor y = call.made();
  const auto channels = static_cast<std::size_t>(call.value().channels());
  const bool pixels = call.value().type == DType::u8;
  for (Index i = 0; i < y.elements(); ++i) {
    const std::size_t channel = static_cast<std::size_t>(i) % channels;
    const float x = call.x().data<float>()[i];
    y.data<float>()[i] =
        ((pixels ? x / 255.0F : x) - of(op.mean, channel, 0)) / of(op.std, channel, 1);
  }
  return y;
}

Tensor concat(const Call& call) {
  Tensor y = call.made();
  const Index all = call.graph.output(call.node).channels();
  Index before = 0;
  for (std::size_t i = 0; i < call.read.size(); ++i) {
    const Index channels = call.value(i).channels(), pixels = call.x(i).elements() / channels;
    for (Index pixel = 0; pixel < pixels; ++pixel)
      std::copy_n(call.x(i).data<float>() + pixel * channels, channels,
                  y.data<float>() + pixel * all + before);
    before += channels;
  }
  return y;
}

Tensor slice(const Call& call) {
  const auto& op = *call.node.as<Slice>();
  Tensor y = call.made();
  const Index all = call.value().channels(), pixels = call.x().elements() / all;
  for (Index pixel = 0; pixel < pixels; ++pixel)
    std::copy_n(call.x().data<float>() + pixel * all + op.first, op.count,
                y.data<float>() + pixel * op.count);
  return y;
}

Tensor flatten(const Call& call) {
  Tensor y = call.made();
  const Value& x = call.value();
  const Index channels = x.channels(), pixels = x.h() * x.w(), image = channels * pixels;
  const bool channels_first = call.node.as<Flatten>()->channels_first;
  for (Index i = 0; i < y.elements(); ++i) {
    const Index first = i / image * image, at = i % image;
    const Index from = channels_first ? at % pixels * channels + at / pixels : at;
    y.data<float>()[i] = call.x().data<float>()[first + from];
  }
  return y;
}

/// Summed in the order of the steps, in fp32, as the program does.
Tensor mean_of_steps(const Call& call) {
  Tensor y = call.made();
  const Index steps = call.graph.steps, step = y.elements();
  const float* const x = call.x().data<float>();
  for (Index i = 0; i < step; ++i) {
    float sum = x[i];
    for (Index t = 1; t < steps; ++t) sum += x[t * step + i];
    y.data<float>()[i] = steps > 1 ? sum / static_cast<float>(steps) : sum;
  }
  return y;
}

}  // namespace

std::vector<Index> interpreted_shape(const Graph& graph, const Value& value, Index n) {
  return {value.timed ? graph.steps : 1, n, value.h(), value.w(), value.channels()};
}

Interpreted interpret(const Graph& graph, const Node& node,
                      const std::vector<const Interpreted*>& read, Threads& threads,
                      reference::Sum sum, Tensor* charged) {
  const Call call{graph, node, read, read.front()->view().shape[1]};
  if (const std::optional<Stage> single = stage_of(graph, node))
    return stage(call, single->normalised(), threads, sum, charged);
  if (node.as<Normalise>()) return normalise(call);
  if (node.as<Concat>()) return concat(call);
  if (node.as<Slice>()) return slice(call);
  if (node.as<Flatten>()) return flatten(call);
  if (node.as<MeanOfSteps>()) return mean_of_steps(call);
  const auto& norm = *node.as<BatchNorm>();
  Tensor y = call.made();
  const auto channels = static_cast<std::size_t>(call.value().channels());
  const auto at = [&](std::size_t operand, std::size_t channel) {
    return static_cast<double>(graph.constant(node.in[operand])[channel]);
  };
  for (Index i = 0; i < y.elements(); ++i) {
    const std::size_t c = static_cast<std::size_t>(i) % channels;
    const double x = static_cast<double>(call.x().data<float>()[i]);
    const double value =
        (x - at(3, c)) / std::sqrt(at(4, c) + static_cast<double>(norm.eps)) * at(1, c) + at(2, c);
    y.data<float>()[i] = math::round_to(call.value().type, static_cast<float>(value));
  }
  return y;
}

std::vector<Interpreted> interpret(const Graph& graph, const std::vector<ConstTensorView>& inputs,
                                   Threads& threads, reference::Sum sum) {
  std::vector<Interpreted> values(graph.values.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ConstTensorView& view = inputs[i];
    const Value& value = graph.values[graph.inputs[i]];
    Tensor there(DType::f32, interpreted_shape(graph, value, view.shape[0]));
    for (Index at = 0; at < there.elements(); ++at)
      there.data<float>()[at] = math::load(view.dtype, view.data, at);
    values[graph.inputs[i]] = std::move(there);
  }
  for (const Node& node : graph.nodes) {
    std::vector<const Interpreted*> read;
    for (const ValueId id : node.in)
      if (!graph.values[id].constant) read.push_back(&values[id]);
    values[node.out] = interpret(graph, node, read, threads, sum);
  }
  return values;
}

}  // namespace convoy::graph
