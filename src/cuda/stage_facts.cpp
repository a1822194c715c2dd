#include "cuda/stage_facts.hpp"

#include <fmt/core.h>

#include "convoy/error.hpp"

namespace convoy::cuda {

DType compute_type(const Stage& stage) {
  const DType type = stage.dtype == DType::u8 ? stage.output_dtype(true) : stage.dtype;
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return type;
    case DType::u8:
    case DType::i32:
      break;
  }
  throw Error(fmt::format("{}: no kernel multiplies {}", to_text(stage), to_text(type)));
}

Cost cost_of(const Stage& stage, double seconds, double waste) {
  const Shapes shapes = shapes_of(stage);
  const auto bytes = [](Index elements, DType dtype) {
    return static_cast<double>(elements) * static_cast<double>(size_of(dtype));
  };
  const double steps = stage.hold ? 1.0 : static_cast<double>(stage.t);
  Cost cost;
  cost.seconds = seconds;
  cost.waste = waste;
  cost.flops = 2.0 * static_cast<double>(shapes.macs) * steps / (1 - waste);
  cost.bytes = bytes(shapes.x_elements, stage.dtype) +
               bytes(shapes.w_elements, compute_type(stage)) +
               bytes(shapes.y_elements, stage.output_dtype(true));
  return cost;
}

}  // namespace convoy::cuda
