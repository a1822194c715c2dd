// The measured times of a stage's kernels and tiles: what `tune` chooses from, and what cost models
// are fitted to.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convoy/tune.hpp"
#include "core/chain.hpp"
#include "core/machine.hpp"
#include "plan/timing.hpp"

namespace convoy {

/// One of several ways to do the same.
struct TimedCandidate {
  TuneRow row;
  std::function<Timing(double seconds)> time;
  TimedCandidate(std::string kernel, std::string tile, double predicted,
                 std::function<Timing(double seconds)> time_)
      : time(std::move(time_)) {
    row.kernel = std::move(kernel);
    row.tile = std::move(tile);
    row.predicted = predicted;
  }
};
/// Times all of them in turns, so that a slow moment of the machine falls on all: five rounds,
/// `seconds` each in all. The rows, the fastest first and chosen. Throws Error where `seconds` is
/// not above 0.
std::vector<TuneRow> time_in_turns(std::vector<TimedCandidate> candidates, double seconds);

/// Writes the first row to the tuning cache, under the chain. The cache's path. Throws Error where
/// that can't be written.
std::string save_fastest(const Machine& machine, const Chain& chain,
                         const std::vector<TuneRow>& rows);

/// Whose tiles: those of the arithmetic that a plan would use, or of all that fit.
enum class Arithmetics { chosen, all };

/// Measures as `tune` does and saves nothing. Left out is what the cost model puts at more than
/// four times the plan's choice. Throws Error as a Plan would, and where `seconds`, for each tile,
/// is not above 0.
TuneResult measure_tiles(const Stage& stage, const PlanOptions& options, double seconds,
                         Arithmetics which);

}  // namespace convoy
