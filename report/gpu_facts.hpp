// The GPU that the page's predictions are of.
#pragma once

#include <optional>

#include "core/machine.hpp"

namespace convoy::report {

struct GpuFacts {
  Machine machine;
  bool stored = false;  // there is none here: an H200, as it said of itself
};

/// The first GPU here, else a stored H200; nothing in a build without GPU kernels.
std::optional<GpuFacts> gpu_facts();
/// The stored H200, whatever is here; nothing in a build without GPU kernels.
std::optional<Machine> h200_facts();

}  // namespace convoy::report
