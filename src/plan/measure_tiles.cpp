#include "plan/measure_tiles.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "plan/select.hpp"
#include "plan/timing.hpp"

namespace convoy {
namespace {

struct Candidate {
  Plan plan;
  TuneRow row;
  std::vector<double> medians;  // one a round
};

std::vector<Candidate> candidates_of(const Stage& stage, const Selection& selection,
                                     const Machine& machine, const PlanOptions& options,
                                     const Tensor& weights, Arithmetics which) {
  const bool forced = !options.kernel.empty();
  std::vector<Candidate> candidates;
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
      const double seconds = kernel.cost(stage, ranked.tile, machine).seconds;
      if (seconds > 4 * best) continue;
      PlanOptions one = options;
      one.kernel = kernel.name();
      one.tile = ranked.tile.name;
      one.use_tuning = false;
      candidates.push_back(
          {Plan(stage, weights, one), {one.kernel, one.tile, seconds, 0, 0, 0, false}, {}});
    }
  }
  return candidates;
}

}  // namespace

TuneResult measure_tiles(const Stage& given, const PlanOptions& options, double seconds,
                         Arithmetics which) {
  const Stage stage = given.normalised();
  if (!(seconds > 0)) throw Error(fmt::format("tune: {} seconds, expected above 0", seconds));
  const Machine machine = machine_for(options);
  const RandomOperands random(stage, 1, machine);
  const Selection selection = select(stage, machine, options, nullptr);
  std::vector<Candidate> candidates =
      candidates_of(stage, selection, running(machine, selection), options, random.weights, which);

  // In turns, so that a slow moment of the machine falls on all of them.
  constexpr int rounds = 5;
  for (int round = 0; round < rounds; ++round) {
    for (Candidate& candidate : candidates) {
      const Timing timing = time_runs(candidate.plan, random, seconds / rounds);
      candidate.medians.push_back(timing.median);
      TuneRow& row = candidate.row;
      row.minimum = round == 0 ? timing.minimum : std::min(row.minimum, timing.minimum);
      row.runs += timing.runs;
    }
  }
  TuneResult result{stage, std::string(selection.kernel().arithmetic()), {}, {}};
  for (Candidate& candidate : candidates) {
    std::sort(candidate.medians.begin(), candidate.medians.end());
    candidate.row.median = candidate.medians[rounds / 2];
    result.rows.push_back(std::move(candidate.row));
  }
  std::stable_sort(result.rows.begin(), result.rows.end(),
                   [](const TuneRow& a, const TuneRow& b) { return a.median < b.median; });
  result.rows.front().chosen = true;
  return result;
}

}  // namespace convoy
