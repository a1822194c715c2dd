// Whether a stage's sums are exact, so that no order of them and no rounding decides anything.
#pragma once

#include "core/threads.hpp"
#include "verify/draw.hpp"

namespace convoy::verify {

/// Whether fp32 rounds none of a stage's sums, whatever their order, nor `times` such sums.
bool sums_are_exact(const Inputs& inputs, Index times, Threads& threads);

}  // namespace convoy::verify
