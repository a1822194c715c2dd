#include "plan/measure_tiles.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "core/date.hpp"
#include "core/gpu.hpp"
#include "plan/parts.hpp"
#include "plan/select.hpp"
#include "plan/tuning_cache.hpp"

namespace convoy {
namespace {

std::vector<TimedCandidate> candidates_of(const Stage& stage, const Selection& selection,
                                          const Machine& machine, const PlanOptions& options,
                                          RandomOperands& random, Arithmetics which) {
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
      if (which != Arithmetics::chosen) continue;
      const Device device = machine.device;
      candidates.back().outputs = [plan, &random, &stage, device] {
        Tensor workspace = workspace_for_streams(plan->workspace_bytes(), device);
        Operands all = random.operands(stage);
        all.workspace = workspace.data<void>();
        Tensor* const written[] = {&random.y, &random.pre, &random.act, &random.idx,
                                   &random.membrane_out};
        return outputs_of(device, written, [&] { return plan->run(all); });
      };
    }
  }
  return candidates;
}

}  // namespace

std::vector<TuneRow> time_in_turns(std::vector<TimedCandidate> candidates, double seconds) {
  if (!(seconds > 0))
    throw Error(fmt::format("tune: found {} seconds, expected more than 0", seconds));
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
  std::stable_sort(rows.begin(), rows.end(), [](const TuneRow& a, const TuneRow& b) {
    return std::pair(!a.refused.empty(), a.median) < std::pair(!b.refused.empty(), b.median);
  });
  rows.front().chosen = rows.front().refused.empty();
  return rows;
}

void refuse_other_bits(std::vector<TimedCandidate>& candidates, std::string_view kernel,
                       std::string_view tile) {
  const auto expected = std::find_if(candidates.begin(), candidates.end(), [&](const auto& one) {
    return one.row.kernel == kernel && one.row.tile == tile && one.outputs;
  });
  if (expected == candidates.end()) return;
  const std::vector<std::byte> want = expected->outputs();
  for (TimedCandidate& candidate : candidates) {
    if (!candidate.outputs || !candidate.row.refused.empty()) continue;
    const std::vector<std::byte> got = candidate.outputs();
    if (got == want) continue;
    const auto differing = std::inner_product(
        want.begin(), want.begin() + static_cast<Index>(std::min(want.size(), got.size())),
        got.begin(), Index{0}, std::plus<>(), std::not_equal_to<>());
    candidate.row.refused = fmt::format(
        "{} of {} bytes of its output differ from those of {} {}, which a plan uses without "
        "tuning, expected none: tuning never changes a result. Report this with the stage and the "
        "machine",
        differing, want.size(), kernel, tile);
  }
}

std::string other_arithmetic(std::string_view found, std::string_view expected) {
  return fmt::format(
      "its arithmetic ({}) is not that of the plan's choice ({}): tuning never changes a result",
      found, expected);
}

std::vector<std::byte> outputs_of(Device device, std::span<Tensor* const> outputs,
                                  const std::function<Status()>& run) {
  for (Tensor* output : outputs) {
    if (!output->view()) continue;
    const TensorView view = output->view();
    Tensor poison(view.dtype, {view.shape.begin(), view.shape.begin() + view.rank});
    std::memset(poison.data<void>(), 0xff, poison.bytes());
    copy_tensor(poison, view);
  }
  run().or_throw();
  if (device.kind == DeviceKind::cuda) gpu::synchronize(device, {});
  std::vector<std::byte> all;
  for (const Tensor* output : outputs) {
    if (!output->view()) continue;
    const Tensor written = output->to(Device{});
    const auto* const from = static_cast<const std::byte*>(written.data<void>());
    all.insert(all.end(), from, from + written.bytes());
  }
  return all;
}

bool add_fastest(TuningCache& cache, const Machine& machine, const Chain& chain,
                 const std::vector<TuneRow>& rows) {
  const TuneRow& fastest = rows.front();
  if (!fastest.refused.empty()) return false;
  cache.set(machine, chain, {fastest.kernel, fastest.tile, fastest.median, false, utc_now()});
  return true;
}

std::string save_fastest(const Machine& machine, const Chain& chain,
                         const std::vector<TuneRow>& rows) {
  TuningCache cache;
  if (!add_fastest(cache, machine, chain, rows)) return {};
  std::string path = tuning_cache_path();
  save_tuning_cache(path, cache);
  return path;
}

TuneResult measure_tiles(const Stage& given, const PlanOptions& options, double seconds,
                         Arithmetics which) {
  const Stage stage = given.normalised();
  const Machine machine = machine_for(options);
  RandomOperands random(stage, 1, machine);
  const Selection selection = select(stage, machine, options, nullptr);
  std::vector<TimedCandidate> candidates =
      candidates_of(stage, selection, running(machine, selection), options, random, which);
  refuse_other_bits(candidates, selection.kernel().name(), selection.tile.tile.name);
  return {stage,
          std::string(selection.kernel().arithmetic()),
          time_in_turns(std::move(candidates), seconds),
          {}};
}

}  // namespace convoy
