#include "convoy/tune.hpp"

#include "core/date.hpp"
#include "plan/measure_tiles.hpp"
#include "plan/select.hpp"

namespace convoy {

TuneResult tune(const Stage& stage, const PlanOptions& options, double seconds, bool save) {
  TuneResult result = measure_tiles(stage, options, seconds, Arithmetics::chosen);
  if (save) {
    const TuneRow& fastest = result.rows.front();
    TuningCache cache;
    cache.set(machine_for(options), result.stage,
              {fastest.kernel, fastest.tile, fastest.median, false, utc_now()});
    result.saved_to = tuning_cache_path();
    save_tuning_cache(result.saved_to, cache);
  }
  return result;
}

}  // namespace convoy
