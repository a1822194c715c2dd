// Tuning: measures the tiles that a plan may choose among, and remembers the fastest.
#pragma once

#include <string>
#include <vector>

#include "convoy/plan.hpp"

namespace convoy {

struct TuneRow {
  std::string kernel, tile;
  double predicted = 0;            // seconds, by the cost model
  double median = 0, minimum = 0;  // seconds, measured
  int runs = 0;
  bool chosen = false;
};

struct TuneResult {
  Stage stage;
  std::string arithmetic;     // it fixes the bits; tuning never leaves it
  std::vector<TuneRow> rows;  // the fastest first
  std::string saved_to;       // path of the cache; empty where saving was not asked for
};

/// Measures every kernel and tile of the arithmetic that a plan with these options would use, in
/// turns, `seconds` each in all, on random operands. save: writes the fastest to the tuning cache,
/// where plans of this stage on this machine with this number of threads find it.
/// Throws Error as a Plan would, and when the cache can't be written.
CONVOY_API TuneResult tune(const Stage& stage, const PlanOptions& options = {},
                           double seconds = 0.3, bool save = true);

}  // namespace convoy
