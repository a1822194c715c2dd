// A stage as scripts read it.
#pragma once

#include <nlohmann/json.hpp>

#include "convoy/stage.hpp"

namespace convoy::inspect {

/// Sizes of an image and of the filter, padding (top, left, bottom, right), the activation by its
/// name in a stage's text with its parameters, and the pool, or null. Neither n nor the type.
nlohmann::json json_of(const Stage& stage);

}  // namespace convoy::inspect
