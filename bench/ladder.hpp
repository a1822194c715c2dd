// The ladder's rungs on one stage: each checked against the oracle, all timed in turns.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/harness.hpp"
#include "core/kernel.hpp"

namespace convoy::bench {

/// A kernel and tile that took part.
struct Climber {
  const Kernel* kernel = nullptr;
  Tile tile;
  Timing timing;
  double error = 0;                     // as Row's
  std::vector<GpuResources> resources;  // a launch each
};

struct LadderRow {
  const Rung* rung = nullptr;
  std::size_t climber = 0;
  double factor = 0;            // the rung below's median time / its; 0: the first
  std::ptrdiff_t without = -1;  // the climber that has all but this; -1: none
  double without_factor = 0;    // its time / that of the rung which it lacks one thing of
};

struct Ladder {
  std::string stage;
  std::vector<Climber> climbers;
  std::vector<LadderRow> rows;        // from the bottom to the top
  std::vector<std::string> left_out;  // rungs that refuse the stage, with their reasons
  double flops = 0, peak_flops = 0, clock_ghz = 0;
  int rounds = 0;
  bool quiet = false;
};

/// The stages that `convoy ladder` takes without being given any.
std::vector<Stage> ladder_stages();

/// Of options: plan.device, seconds_per_turn, least_rounds, most_rounds, quiet and progress. Throws
/// Error where no rung takes the stage, or an output is wrong.
Ladder climb(const Stage& stage, const Options& options);

nlohmann::ordered_json to_json(const Ladder& ladder);
/// A table a person reads.
std::string to_table(const Ladder& ladder);

}  // namespace convoy::bench
