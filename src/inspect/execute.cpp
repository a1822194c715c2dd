#include "inspect/execute.hpp"

#include <algorithm>
#include <chrono>

#include "network/convert.hpp"
#include "plan/timing.hpp"
#include "reference/reference.hpp"

namespace convoy::inspect {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

ConstTensorView weights_of(const Operator& op) {
  return ConstTensorView::of(op.w.data(), w_shape(op.stage));
}
ConstTensorView bias_of(const Operator& op) {
  if (op.bias.empty()) return {};
  return ConstTensorView::of(op.bias.data(), {op.stage.k});
}

/// The same values in another shape.
ConstTensorView reshaped(const ConstTensorView& dense, const std::vector<Index>& shape) {
  return {dense.data, dense.dtype, shape, dense.device};
}

Tensor tensor_of(const std::vector<double>& values, const std::vector<Index>& shape) {
  Tensor tensor(DType::f32, shape);
  std::transform(values.begin(), values.end(), tensor.data<float>(),
                 [](double value) { return static_cast<float>(value); });
  return tensor;
}

}  // namespace

Tensor first_input(const NetworkText& text, const ConstTensorView& images, Threads& threads) {
  Tensor x(DType::f32, {1, images.shape[0], text.h, text.w, text.c});
  const network::Conversion conversion({text.mean, text.std}, text.dtype, text.c);
  conversion.run(threads, x.elements(), images.data, x.data<float>());
  return x;
}

ConstTensorView input_of(const Operator& op, const std::vector<Output>& outputs,
                         const Tensor& images, Tensor& joined) {
  if (op.inputs.empty()) return images;
  if (op.inputs.size() == 1) return outputs[op.inputs.front()].y;
  const ConstTensorView first = outputs[op.inputs.front()].y;
  const Index pixels = first.shape[0] * first.shape[1];  // steps and images as one axis
  joined = Tensor(DType::f32, {pixels, first.shape[2], first.shape[3], op.stage.c});
  Index channel = 0;
  for (const std::size_t input : op.inputs) {
    const ConstTensorView y = outputs[input].y;
    copy_tensor(reshaped(y, {pixels, y.shape[2], y.shape[3], y.shape[4]}),
                joined.view().channels(channel, y.shape[4]));
    channel += y.shape[4];
  }
  return joined;
}

Output OracleReference::run(const Operator& op, Index steps, Index n, const ConstTensorView& x) {
  const auto begin = Clock::now();
  const Stage stage = stage_for(op, steps, n);
  Operands operands;
  operands.x = reshaped(x, x_shape(stage));
  operands.bias = bias_of(op);
  const reference::Oracle oracle(stage, weights_of(op), operands, reference::Sum::exact);
  const reference::Outputs all = oracle.all(threads_);
  Output output;
  output.y = tensor_of(all.y, output_shape(op, steps, n));
  if (op.kind == OperatorKind::neuron)
    output.membrane = tensor_of(all.pre, output_shape(op, steps, n));
  output.seconds = since(begin);
  return output;
}

std::vector<Output> all_by_reference(const Operators& operators, const Tensor& images,
                                     Reference& reference) {
  const Index n = images.view().shape[1];
  std::vector<Output> outputs;
  for (const Operator& op : operators.all) {
    Tensor joined;
    const ConstTensorView x = input_of(op, outputs, images, joined);
    outputs.push_back(reference.run(op, operators.steps(), n, x));
  }
  return outputs;
}

Planned::Planned(const Operator& op, Index steps, Index n, const PlanOptions& options)
    : plan_(stage_for(op, steps, n), weights_of(op), options),
      shape_(output_shape(op, steps, n)),
      x_(DType::f32, x_shape(plan_.stage()), options.device),
      y_(DType::f32, y_shape(plan_.stage()), options.device) {
  if (op.bias.empty()) return;
  bias_ = Tensor(DType::f32, {op.stage.k}, options.device);
  copy_tensor(bias_of(op), bias_);
}

Operands Planned::operands() {
  Operands operands;
  operands.x = x_;
  operands.y = y_;
  operands.bias = bias_;
  return operands;
}

Output Planned::run(const ConstTensorView& x) {
  copy_tensor(reshaped(x, x_shape(plan_.stage())), x_);
  Output output;
  output.y = Tensor(DType::f32, shape_);
  plan_.run(operands()).or_throw();
  copy_tensor(y_, TensorView::of(output.y.data<float>(), y_shape(plan_.stage())));
  return output;
}

double Planned::time() {
  constexpr double long_enough = 0.05;  // seconds, for a steady median of a small operator
  Tensor workspace = workspace_for_streams(plan_.workspace_bytes(), plan_.device());
  Operands all = operands();
  all.workspace = workspace.data<void>();
  const auto call = [&](Stream stream, std::size_t) { plan_.run(all, stream).or_throw(); };
  return summary(sample_calls(plan_.device(), 1, call, long_enough)).median;
}

Tensor mean_of(const Tensor& y) {
  const ConstTensorView view = y.view();
  const Index steps = view.shape[0], values = y.elements() / steps;
  Tensor mean(DType::f32, {1, view.shape[1], view.shape[2], view.shape[3], view.shape[4]});
  for (Index i = 0; i < values; ++i) {
    double sum = 0;
    for (Index t = 0; t < steps; ++t) sum += static_cast<double>(y.data<float>()[t * values + i]);
    mean.data<float>()[i] = static_cast<float>(sum / static_cast<double>(steps));
  }
  return mean;
}

}  // namespace convoy::inspect
