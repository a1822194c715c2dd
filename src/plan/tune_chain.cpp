#include "plan/tune_chain.hpp"

#include <fmt/core.h>

#include "core/date.hpp"
#include "plan/chain_runs.hpp"
#include "plan/measure_tiles.hpp"
#include "plan/segments.hpp"
#include "plan/select.hpp"

namespace convoy {

ChainTuneResult tune_chain(const Chain& chain, const PlanOptions& options, double seconds,
                           bool save) {
  if (chain.size() > most_stages)
    throw Error(
        fmt::format("tune: {} stages in a row, expected at most {}: longer chains are cut. "
                    "Tune its parts.",
                    chain.size(), most_stages));
  const Machine machine = machine_for(options);
  const Selection selection = select(chain, machine, options, nullptr);
  const ChainRuns runs(chain, options);
  std::vector<TimedCandidate> candidates;
  for (const Verdict& verdict : selection.verdicts) {
    if (!verdict.fits() || verdict.kernel->arithmetic() != selection.kernel().arithmetic())
      continue;
    for (const RankedTile& ranked : verdict.tiles) {
      const std::string kernel(verdict.kernel->name()), tile = ranked.tile.name;
      candidates.emplace_back(kernel, tile, ranked.cost.seconds, [&runs, kernel, tile](double s) {
        return runs.time_whole(kernel, tile, s);
      });
    }
  }
  candidates.emplace_back(stages_by_themselves, "by themselves", runs.predicted_stages(),
                          [&runs](double s) { return runs.time_stages(s); });
  ChainTuneResult result{OwnedChain(chain),
                         std::string(selection.kernel().arithmetic()),
                         time_in_turns(std::move(candidates), seconds),
                         {}};
  if (save) {
    const TuneRow& fastest = result.rows.front();
    TuningCache cache;
    cache.set(machine, chain, {fastest.kernel, fastest.tile, fastest.median, false, utc_now()});
    result.saved_to = tuning_cache_path();
    save_tuning_cache(result.saved_to, cache);
  }
  return result;
}

}  // namespace convoy
