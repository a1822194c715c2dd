#include "plan/tune_chain.hpp"

#include <fmt/core.h>

#include "plan/chain_runs.hpp"
#include "plan/measure_tiles.hpp"
#include "plan/segments.hpp"
#include "plan/select.hpp"

namespace convoy {

ChainTuneResult tune_chain(const Chain& chain, const PlanOptions& options, double seconds,
                           bool save) {
  if (chain.size() > most_stages)
    throw Error(
        fmt::format("tune: found a chain of {} stages, expected at most {}, because longer chains "
                    "are cut. Tune its parts.",
                    chain.size(), most_stages));
  const Machine machine = machine_for(options);
  const Selection selection = select(chain, machine, options, nullptr);
  ChainRuns runs(chain, options);
  std::vector<TimedCandidate> candidates;
  for (const Verdict& verdict : selection.verdicts) {
    if (!verdict.fits() || verdict.kernel->arithmetic() != selection.kernel().arithmetic())
      continue;
    for (const RankedTile& ranked : verdict.tiles) {
      const std::string kernel(verdict.kernel->name()), tile = ranked.tile.name;
      const std::shared_ptr<const Bound> bound = runs.bind(kernel, tile);
      candidates.emplace_back(kernel, tile, ranked.cost.seconds, [&runs, bound](double of_run) {
        return summary(runs.sample_whole(*bound, of_run));
      });
      candidates.back().outputs = [&runs, bound] { return runs.outputs_of_whole(*bound); };
    }
  }
  candidates.emplace_back(stages_by_themselves, "by themselves", runs.predicted_stages(),
                          [&runs](double s) { return summary(runs.sample_stages(s)); });
  const std::string_view arithmetic = selection.kernel().arithmetic();
  if (const std::string other = runs.other_than(arithmetic); other.empty())
    candidates.back().outputs = [&runs] { return runs.outputs_of_stages(); };
  else
    candidates.back().row.refused = other_arithmetic(other, arithmetic);
  refuse_other_bits(candidates, selection.kernel().name(), selection.tile.tile.name);
  ChainTuneResult result{OwnedChain(chain),
                         std::string(selection.kernel().arithmetic()),
                         time_in_turns(std::move(candidates), seconds),
                         {}};
  if (save) result.saved_to = save_fastest(machine, chain, result.rows);
  return result;
}

}  // namespace convoy
