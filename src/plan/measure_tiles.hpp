// The measured times of a stage's kernels and tiles: what `tune` chooses from, and what cost models
// are fitted to.
#pragma once

#include "convoy/tune.hpp"

namespace convoy {

/// Whose tiles: those of the arithmetic that a plan would use, or of all that fit.
enum class Arithmetics { chosen, all };

/// Measures as `tune` does and saves nothing. Left out is what the cost model puts at more than
/// four times the plan's choice. Throws Error as a Plan would, and where `seconds`, for each tile,
/// is not above 0.
TuneResult measure_tiles(const Stage& stage, const PlanOptions& options, double seconds,
                         Arithmetics which);

}  // namespace convoy
