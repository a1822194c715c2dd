// A plan with everything that a run of it needs.
#pragma once

#include <string_view>
#include <vector>

#include "convoy/plan.hpp"
#include "plain_options.hpp"

namespace convoy {

/// f32: small whole numbers of both signs; other types: zeros.
inline Tensor filled(DType dtype, const std::vector<Index>& shape) {
  Tensor tensor(dtype, shape);
  if (dtype == DType::f32)
    for (Index i = 0; i < tensor.elements(); ++i)
      tensor.data<float>()[i] = static_cast<float>((i * 7) % 13 - 6);
  return tensor;
}

/// Of a stage without norm and second outputs whose y is f32.
struct ReadyPlan {
  Stage stage;
  Tensor x, w, bias, y;
  Plan plan;
  explicit ReadyPlan(std::string_view text, const PlanOptions& options = plain())
      : stage(parse_stage(text)),
        x(filled(stage.dtype, x_shape(stage))),
        w(filled(DType::f32, w_shape(stage))),
        bias(filled(DType::f32, {stage.k})),
        y(DType::f32, y_shape(stage)),
        plan(stage, w, options) {}
  Operands operands() {
    Operands all;
    all.x = x;
    all.y = y;
    if (stage.bias) all.bias = bias;
    return all;
  }
};

}  // namespace convoy
