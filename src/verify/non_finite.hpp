// NaN and infinities in the input: a kernel hands them on where the oracle does.
#pragma once

#include <string>
#include <vector>

#include "verify/parity.hpp"

namespace convoy::verify {

/// NaN, infinities and 1e37 at each position of a 6x6 patch of the input: what is not finite must
/// be where the oracle has it, and nowhere else. For small stages: it takes 144 runs, or those of
/// every `parts`-th position from `part` on.
std::vector<std::string> check_non_finite(const Stage& stage, std::uint64_t seed,
                                          const Check& check, Device device, Threads& threads,
                                          Tally& tally, Index part = 0, Index parts = 1);

}  // namespace convoy::verify
