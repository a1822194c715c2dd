// GPUs by name, for whatever looks at a kernel without having one: what `explain --device h200` and
// tests plan for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cuda/device_facts.hpp"

namespace convoy::cuda {

/// What an H200 says of itself.
DeviceFacts h200();

/// The facts of a GPU by a short name ("h200", "a100"); none: not among them.
std::optional<DeviceFacts> known_gpu(std::string_view name);
/// "h200, h100, ..."
std::string known_gpu_names();

}  // namespace convoy::cuda
