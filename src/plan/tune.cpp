#include "convoy/tune.hpp"

#include "core/failure.hpp"
#include "plan/measure_tiles.hpp"
#include "plan/select.hpp"

namespace convoy {

TuneResult tune(const Stage& stage, const PlanOptions& options, double seconds, bool save) try {
  TuneResult result = measure_tiles(stage, options, seconds, Arithmetics::chosen);
  if (save) result.saved_to = save_fastest(machine_for(options), result.stage, result.rows);
  return result;
} catch (...) {
  rethrow_as_error();
}

}  // namespace convoy
