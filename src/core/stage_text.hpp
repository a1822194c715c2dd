// The stage grammar without its requirement that every axis be there: network.txt gives layers
// whose n, h, w and c follow from the layer before.
#pragma once

#include <string_view>

#include "convoy/stage.hpp"

namespace convoy {

/// Which axes a text gave.
struct GivenAxes {
  bool n = false, h = false, w = false, c = false, k = false, r = false, s = false;
  bool dtype = false;
};

/// Parses a text in which any axis may be missing; w defaults to h and s to r where those were
/// given. Checks the text, not whether the stage is legal. Throws Error that points at the place.
Stage parse_stage_parts(std::string_view text, GivenAxes& given);

/// "relu", without parameters; "none" where there is no activation.
std::string_view name_of(Activation::Kind kind);

/// Without the white space around it.
std::string_view trim(std::string_view text);

}  // namespace convoy
