// The measured times of a stage's kernels and tiles: what `tune` chooses from, and what cost models
// are fitted to.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/tune.hpp"
#include "core/chain.hpp"
#include "core/machine.hpp"
#include "plan/timing.hpp"

namespace convoy {

class TuningCache;

/// One of several ways to do the same.
struct TimedCandidate {
  TuneRow row;
  std::function<Timing(double seconds)> time;
  /// Runs it once: all that it wrote. Not given: nothing is compared.
  std::function<std::vector<std::byte>()> outputs;
  TimedCandidate(std::string kernel, std::string tile, double predicted,
                 std::function<Timing(double seconds)> time_)
      : time(std::move(time_)) {
    row.kernel = std::move(kernel);
    row.tile = std::move(tile);
    row.predicted = predicted;
  }
};
/// Times all of them in turns, so that a slow moment of the machine falls on all: five rounds,
/// `seconds` each in all. The rows, the fastest first and chosen; those refused come last, and are
/// none of them chosen. Throws Error where `seconds` is not above 0.
std::vector<TuneRow> time_in_turns(std::vector<TimedCandidate> candidates, double seconds);

/// Tuning must not change bits: refuses each candidate that writes others than the one of that
/// kernel and tile, which a plan uses unmeasured. Throws Error where a run fails.
void refuse_other_bits(std::vector<TimedCandidate>& candidates, std::string_view kernel,
                       std::string_view tile);

/// What a refused row says of another arithmetic.
std::string other_arithmetic(std::string_view found, std::string_view expected);

/// Outputs of runs, for comparing: poisons the tensors, calls `run`, and gives their bytes. Throws
/// Error when the run fails.
std::vector<std::byte> outputs_of(Device device, std::span<Tensor* const> outputs,
                                  const std::function<Status()>& run);

/// Adds the first row, unless it is refused, under the chain. Whether it did.
bool add_fastest(TuningCache& cache, const Machine& machine, const Chain& chain,
                 const std::vector<TuneRow>& rows);

/// Writes the first row, unless it is refused, to the tuning cache, under the chain. The cache's
/// path. Throws Error where that can't be written.
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
