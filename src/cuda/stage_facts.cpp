#include "cuda/stage_facts.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "core/size.hpp"

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

std::vector<std::string> too_large(const Stage& stage) {
  constexpr Index most = Index{1} << 30, most_elements = Index{1} << 39;
  std::vector<std::string> why;
  const auto check = [&](const char* what, Index size, Index limit, const char* limit_text) {
    if (size > limit) why.push_back(fmt::format("{} {}, at most {} fit", what, size, limit_text));
  };
  const Shapes shapes = shapes_of(stage);
  check("N =", stage.n, most, "2^30");
  check("C =", stage.c, most, "2^30");
  check("K =", stage.k, most, "2^30");
  check("H, padded, and the filter's rows =",
        stage.h + stage.pad.top + stage.pad.bottom + stage.dil.h * stage.r, most, "2^30");
  check("W, padded, and the filter's columns =",
        stage.w + stage.pad.left + stage.pad.right + stage.dil.w * stage.s, most, "2^30");
  check("elements of x =", shapes.x_elements, most_elements, "2^39");
  check("elements of w =", shapes.w_elements, most_elements, "2^39");
  check("elements of the convolution's output =", shapes.pre_elements, most_elements, "2^39");
  check("elements of y =", shapes.y_elements, most_elements, "2^39");
  return why;
}

bool countable(std::initializer_list<Index> tiles_along_axes) {
  constexpr Index limit = Index{1} << 32;
  constexpr Index last_step = 1 << 16;  // by which a CTA's walk passes the last tile, and more
  Size all = 1;
  Index most = 1;
  for (const Index tiles : tiles_along_axes) {
    all *= tiles;
    most = std::max(most, tiles);
  }
  return all.fits(std::min(limit / 2 - last_step, limit / most) - 1);
}

}  // namespace convoy::cuda
