#include "cpu/shared/cpu_prepared.hpp"

#include <fmt/format.h>

namespace convoy::cpu {

std::string weights_shape(const Stage& stage) {
  return fmt::format("k{}r{}s{}c{}groups{}", stage.k, stage.r, stage.s, stage.c, stage.groups);
}

}  // namespace convoy::cpu
