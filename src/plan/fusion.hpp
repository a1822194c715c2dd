// Whether two stages run in one launch.
#pragma once

#include <string>

#include "convoy/stage.hpp"
#include "core/machine.hpp"

namespace convoy {

struct Fusion {
  bool fused = false;
  std::string why;  // a sentence, with every refusal or both predicted times
};

/// The rule: both stages run with the arithmetic of `halo` by themselves, so that the bits do not
/// depend on the answer; one launch can hold them; and it is predicted to take less time.
Fusion judge_fusion(const Stage& first, const Stage& second, const Machine& machine);

}  // namespace convoy
