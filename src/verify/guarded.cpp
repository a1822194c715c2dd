#include "verify/guarded.hpp"

namespace convoy::verify {

Result run_guarded(const Plan& plan, const Inputs& inputs, Views views) {
  return Guard(plan.device()).run(plan, inputs, views);
}
Result run_guarded(const std::function<Status(const Operands&)>& run, const Inputs& inputs,
                   Views views) {
  return Guard(Device{}).run([&](const Operands& operands, Stream) { return run(operands); },
                             inputs, views);
}

Result Guard::run(const Plan& plan, const Inputs& inputs, Views views) {
  return run([&](const Operands& operands, Stream stream) { return plan.run(operands, stream); },
             inputs, views);
}

Result Guard::run(const std::function<Status(const Operands&, Stream)>& run, const Inputs& inputs,
                  Views views) {
  const Stage& stage = inputs.stage;
  const DType out = stage.output_dtype(fences_.device().kind == DeviceKind::cuda);
  const Layout layout = stage.layout;
  fences_.clear();
  Operands operands;
  std::vector<std::pair<ConstTensorView*, std::size_t>> read;
  std::vector<std::pair<TensorView*, std::size_t>> written;
  constexpr Layout nhwc = Layout::nhwc;
  const auto input = [&](ConstTensorView& operand, std::string_view name, const Tensor& values) {
    const ConstTensorView v = values.view();
    if (v)
      read.emplace_back(
          &operand, fences_.add(name, v.dtype, {v.shape.begin(), v.shape.begin() + v.rank}, nhwc,
                                Views::dense, &values));
  };
  read.emplace_back(&operands.x,
                    fences_.add("x", stage.dtype, x_shape(stage), layout, views, &inputs.x));
  if (stage.bias) input(operands.bias, "bias", inputs.bias);
  if (stage.norm) input(operands.norm_scale, "norm_scale", inputs.norm_scale);
  if (stage.norm) input(operands.norm_shift, "norm_shift", inputs.norm_shift);
  input(operands.membrane_in, "membrane_in", inputs.membrane_in);
  std::size_t pre = 0, act = 0, idx = 0, membrane = 0;
  const auto output = [&](TensorView& operand, std::string_view name, DType dtype,
                          const std::vector<Index>& shape, Layout order, Views how = Views::dense) {
    written.emplace_back(&operand, fences_.add(name, dtype, shape, order, how, nullptr));
    return written.back().second;
  };
  const std::size_t y = output(operands.y, "y", out, y_shape(stage), layout, views);
  if (stage.keep.pre) pre = output(operands.pre, "pre", out, pre_shape(stage), nhwc);
  if (stage.keep.act) act = output(operands.act, "act", out, pre_shape(stage), nhwc);
  if (stage.keep.idx) idx = output(operands.idx, "idx", DType::i32, y_shape(stage), layout);
  if (stage.act.is_neuron())
    membrane =
        output(operands.membrane_out, "membrane_out", DType::f32, membrane_shape(stage), nhwc);

  fences_.place();
  for (const auto& [operand, at] : read) *operand = fences_.view(at);
  for (const auto& [operand, at] : written) *operand = fences_.view(at);

  Result result;
  const Status status = run(operands, stream());
  if (!status.ok()) {
    result.error = "refused to run: " + status.message();
    result.refused = true;
    return result;
  }
  fences_.fetch();
  result.y = fences_.floats(y);
  if (pre) result.pre = fences_.floats(pre);
  if (act) result.act = fences_.floats(act);
  if (idx) result.idx = fences_.integers(idx);
  if (membrane) result.membrane = fences_.floats(membrane);
  result.error = fences_.damage();
  return result;
}

}  // namespace convoy::verify
