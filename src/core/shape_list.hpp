// Shape lists whose lines are chains. convoy/stage.hpp reads those of single stages.
#pragma once

#include <string>
#include <vector>

#include "core/chain.hpp"

namespace convoy {

/// Chains of a shape list, "STAGE > STAGE" or a stage alone: one a line, '#' starts a comment;
/// errors name file and line. `gpu` decides the types between the stages.
std::vector<OwnedChain> read_chain_list(const std::string& path, bool gpu);

}  // namespace convoy
