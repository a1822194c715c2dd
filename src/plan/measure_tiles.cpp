#include "plan/measure_tiles.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "core/date.hpp"
#include "plan/parts.hpp"
#include "plan/select.hpp"
#include "plan/tuning_cache.hpp"

namespace convoy {
namespace {

std::vector<TimedCandidate> candidates_of(const Stage& stage, const Selection& selection,
                                          const Machine& machine, const PlanOptions& options,
                                          const RandomOperands& random, Arithmetics which) {
  const bool forced = !options.kernel.empty();
  std::vector<TimedCandidate> candidates;
  for (const Verdict& verdict : selection.verdicts) {
    const Kernel& kernel = *verdict.kernel;
    if (!verdict.fits()) continue;
    if (which == Arithmetics::chosen && kernel.arithmetic() != selection.kernel().arithmetic())
      continue;
    if (forced && &kernel != &selection.kernel()) continue;
    // `general` computes everything and wins where nothing else fits: not worth minutes elsewhere.
    const double best = selection.tile.cost.seconds;
    for (const RankedTile& ranked : verdict.tiles) {
      if (!options.tile.empty() && ranked.tile.name != options.tile) continue;
      const double seconds = cost_in_parts(kernel, stage, ranked.tile, machine).seconds;
      if (seconds > 4 * best) continue;
      PlanOptions one = options;
      one.kernel = kernel.name();
      one.tile = ranked.tile.name;
      one.use_tuning = false;
      const auto plan = std::make_shared<Plan>(stage, random.weights, one);
      candidates.emplace_back(one.kernel, one.tile, seconds, [plan, &random](double of_run) {
        return time_runs(*plan, random, of_run);
      });
    }
  }
  return candidates;
}

}  // namespace

std::vector<TuneRow> time_in_turns(std::vector<TimedCandidate> candidates, double seconds) {
  if (!(seconds > 0)) throw Error(fmt::format("tune: {} seconds, expected above 0", seconds));
  constexpr int rounds = 5;
  std::vector<std::vector<double>> medians(candidates.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const Timing timing = candidates[i].time(seconds / rounds);
      medians[i].push_back(timing.median);
      TuneRow& row = candidates[i].row;
      row.minimum = round == 0 ? timing.minimum : std::min(row.minimum, timing.minimum);
      row.runs += timing.runs;
    }
  std::vector<TuneRow> rows;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    std::sort(medians[i].begin(), medians[i].end());
    candidates[i].row.median = medians[i][rounds / 2];
    rows.push_back(std::move(candidates[i].row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TuneRow& a, const TuneRow& b) { return a.median < b.median; });
  rows.front().chosen = true;
  return rows;
}

std::string save_fastest(const Machine& machine, const Chain& chain,
                         const std::vector<TuneRow>& rows) {
  const TuneRow& fastest = rows.front();
  TuningCache cache;
  cache.set(machine, chain, {fastest.kernel, fastest.tile, fastest.median, false, utc_now()});
  std::string path = tuning_cache_path();
  save_tuning_cache(path, cache);
  return path;
}

TuneResult measure_tiles(const Stage& given, const PlanOptions& options, double seconds,
                         Arithmetics which) {
  const Stage stage = given.normalised();
  const Machine machine = machine_for(options);
  const RandomOperands random(stage, 1, machine);
  const Selection selection = select(stage, machine, options, nullptr);
  return {stage,
          std::string(selection.kernel().arithmetic()),
          time_in_turns(
              candidates_of(stage, selection, running(machine, selection), options, random, which),
              seconds),
          {}};
}

}  // namespace convoy
