/// @file
/// Tuning: measures the kernels and tiles that a plan may choose among, and saves the fastest.
#pragma once

#include <string>
#include <vector>

#include "convoy/plan.hpp"

namespace convoy {

/// The measurement of one kernel and tile. A time is the time of one run of the whole stage.
struct TuneRow {
  std::string kernel,    ///< the kernel's name, for PlanOptions::kernel
      tile;              ///< the tile's name, for PlanOptions::tile
  double predicted = 0;  ///< seconds, predicted by the cost model
  double median = 0;     ///< seconds, measured: the median of the medians of five rounds
  double minimum = 0;    ///< seconds, measured: the shortest run
  int runs = 0;          ///< the number of measured runs
  bool chosen = false;   ///< whether it is the fastest that a plan may use: true for the first row
  /// Why a plan must not use it, however fast it is: its results differ in some bits from the
  /// plan's own choice on the measured operands, or it has another arithmetic. Empty: a plan may
  /// use it.
  std::string refused;
};

/// The result of tune().
struct TuneResult {
  Stage stage;             ///< the stage that was measured, normalised
  std::string arithmetic;  ///< the algorithm that fixes the bits; tuning never changes it
  /// The measurements, at least one. The fastest comes first; refused ones come last.
  std::vector<TuneRow> rows;
  std::string saved_to;  ///< path of the tuning cache; empty if `save` was false
};

/// Measures every kernel and tile of the arithmetic that a plan with these options would use, and
/// saves the fastest in the tuning cache.
///
/// - The kernels and tiles take turns. Each is measured for about `seconds` in all, above 0.
/// - The operands are random. tune() allocates x, w and y, several times if they fit into a cache.
/// - A tile that is predicted to take more than four times as long as the best is left out.
/// - Each tile first runs once. It is refused if its results differ in any bit from those of the
///   kernel and tile that a plan would choose without a measurement.
/// - PlanOptions::kernel and PlanOptions::tile narrow the choice.
/// - With `save`, later plans of this stage on this machine with this number of threads use the
///   fastest. Existing plans do not change.
///
/// Throws Error as the constructor of Plan, if `seconds` is not above 0, and if the cache can't be
/// written; then nothing is saved. Several threads and processes may call it at once: they disturb
/// each other's times, but not the cache.
///
///     const Stage stage = parse_stage("n32h56c64k128r3pad1+bias+relu+max2");
///     const TuneResult tuned = tune(stage, {.threads = 1});
///     // tuned.rows[0]: the kernel and tile that Plan(stage, {.threads = 1}) uses from now on
CONVOY_API TuneResult tune(const Stage& stage, const PlanOptions& options = {},
                           double seconds = 0.3, bool save = true);

}  // namespace convoy
