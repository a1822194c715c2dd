// Tuning: measures the tiles that a plan may choose among, and remembers the fastest.
#pragma once

#include <string>
#include <vector>

#include "convoy/plan.hpp"

namespace convoy {

/// One kernel and tile that was measured. Times are of one run of the whole stage.
struct TuneRow {
  std::string kernel, tile;  // as PlanOptions takes them
  double predicted = 0;      // seconds, by the cost model
  double median = 0;         // seconds, measured: the median of five rounds' medians
  double minimum = 0;        // seconds, the shortest run of all
  int runs = 0;              // how many were measured
  bool chosen = false;       // the fastest that may be: that of the first row
  /// Why a plan must not use it, however fast: it gives other bits than the plan's own choice on
  /// the operands that were timed, or has another arithmetic. Empty: it may be chosen.
  std::string refused;
};

struct TuneResult {
  Stage stage;                // normalised
  std::string arithmetic;     // it fixes the bits; tuning never leaves it
  std::vector<TuneRow> rows;  // at least one, the fastest first; those refused behind all others
  std::string saved_to;       // path of the cache; empty where saving was not asked for
};

/// Measures every kernel and tile of the arithmetic that a plan with these options would use, in
/// turns, about `seconds` (above 0) each in all, on random operands that it makes itself: memory
/// for x, w and y of the stage, several times where they fit into a cache. What is predicted to
/// take more than four times the best is left out. Before it is timed, each runs once on these
/// operands: where its bits are not those of the kernel and tile that a plan would use unmeasured,
/// it is refused. `options.kernel` and `options.tile` narrow the choice. save: writes the fastest
/// to the tuning cache, where plans of this stage on this machine with this number of threads find
/// it; plans that were made before do not change.
///
/// Throws Error as a Plan would (an illegal stage, no kernel that fits, no memory), where `seconds`
/// is not above 0, and where the cache can't be written: then nothing is saved. May be called from
/// several threads and processes at once; they disturb each other's times, not the cache.
///
///     const Stage stage = parse_stage("n32h56c64k128r3pad1+bias+relu+max2");
///     const TuneResult tuned = tune(stage, {.threads = 1});
///     // tuned.rows[0]: the kernel and tile that Plan(stage, {.threads = 1}) uses from now on
CONVOY_API TuneResult tune(const Stage& stage, const PlanOptions& options = {},
                           double seconds = 0.3, bool save = true);

}  // namespace convoy
