// Whether two stages run in one launch.
#pragma once

#include <string>

#include "convoy/stage.hpp"
#include "core/machine.hpp"

namespace convoy {

struct Fusion {
  bool possible = false;  // one launch gives the bits of two
  bool fused = false;
  std::string why;  // a sentence, with every refusal or both predicted times
};

/// The rule: both stages run with the arithmetic of `halo` by themselves, so that the bits do not
/// depend on the answer; one launch can hold them; and it is predicted to take less time.
Fusion judge_fusion(const Stage& first, const Stage& second, const Machine& machine);

struct FusionTimes {
  double one_launch = 0, two_launches = 0;  // median seconds
};

/// Times both ways of running two stages whose fusion is possible, for about `seconds` each, with
/// the tiles that judge_fusion names. Throws Error when a run fails.
FusionTimes measure_fusion(const Stage& first, const Stage& second, const Machine& machine,
                           double seconds);

}  // namespace convoy
