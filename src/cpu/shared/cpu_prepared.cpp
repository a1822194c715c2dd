#include "cpu/shared/cpu_prepared.hpp"

#include <fmt/format.h>

namespace convoy::cpu {

std::string weights_shape(const Stage& stage) {
  return fmt::format("k{}r{}s{}c{}groups{}", stage.k, stage.r, stage.s, stage.c, stage.groups);
}

double bytes_of_stage(const Stage& stage, const Shapes& shapes) {
  return static_cast<double>(shapes.x_elements) * static_cast<double>(size_of(stage.dtype)) +
         4.0 * static_cast<double>(shapes.w_elements + shapes.y_elements);
}

void copy_bias(const RunArgs& args, const Stage& stage, Index count, float* to) {
  for (Index k = 0; k < count; ++k) to[k] = args.bias && k < stage.k ? args.bias[k] : 0.0F;
}

}  // namespace convoy::cpu
