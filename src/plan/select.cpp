#include "plan/select.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "convoy/error.hpp"
#include "core/gpu.hpp"
#include "plan/kernel_table.hpp"

namespace convoy {
namespace {

std::vector<RankedTile> rank(const Kernel& kernel, const Stage& stage, const Machine& machine) {
  std::vector<RankedTile> ranked;
  for (Tile& tile : kernel.tiles(stage, machine)) {
    Cost cost = kernel.cost(stage, tile, machine);
    ranked.push_back({std::move(tile), cost});
  }
  // Stable: the family's own order breaks ties, so the answer does not depend on the library's
  // sort.
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedTile& a, const RankedTile& b) {
    return a.cost.seconds < b.cost.seconds;
  });
  return ranked;
}

std::vector<std::string> names_of_fitting(const std::vector<Verdict>& verdicts) {
  std::vector<std::string> names;
  for (const Verdict& verdict : verdicts)
    if (verdict.fits()) names.emplace_back(verdict.kernel->name());
  return names;
}

std::string every_refusal(const std::vector<Verdict>& verdicts) {
  std::string text;
  for (const Verdict& verdict : verdicts)
    text += fmt::format("\n  {}: {}", verdict.kernel->name(), fmt::join(verdict.refusals, "; "));
  return text;
}

Verdict judge(const Kernel& kernel, const Stage& stage, const Stage& canonical,
              const Machine& machine, const Machine& one_thread) {
  Verdict verdict{&kernel, kernel.refusals(stage, machine), 0, {}};
  if (stage.exact() && !kernel.exact()) {
    verdict.refusals.push_back(
        fmt::format("its arithmetic ({}) is not exact on small integers, which {} asks for",
                    kernel.arithmetic(), stage.strict ? "+strict" : "a neuron"));
  }
  if (!verdict.fits()) return verdict;
  verdict.canonical_seconds = rank(kernel, canonical, one_thread).front().cost.seconds;
  verdict.tiles = rank(kernel, stage, machine);
  return verdict;
}

// The forced kernel, or the arithmetic's.
std::size_t forced_kernel(const Selection& selection, const Stage& stage,
                          const PlanOptions& options) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < selection.verdicts.size(); ++i) {
    const Verdict& verdict = selection.verdicts[i];
    names.emplace_back(verdict.kernel->name());
    if (verdict.kernel->name() != options.kernel) continue;
    if (verdict.fits()) return i;
    throw Error(fmt::format("kernel {} can't run {}: {}. What can: {}.", options.kernel,
                            to_text(stage), fmt::join(verdict.refusals, "; "),
                            fmt::join(names_of_fitting(selection.verdicts), ", ")));
  }
  throw Error(fmt::format("kernel \"{}\": there is none of that name on {}. There are: {}.",
                          options.kernel, to_text(options.device), fmt::join(names, ", ")));
}

void choose_tile(Selection& selection, std::size_t first, const Stage& stage,
                 const Machine& machine, const PlanOptions& options, const TuningCache* tuning) {
  const std::string_view arithmetic = selection.verdicts[first].kernel->arithmetic();
  const bool forced = !options.kernel.empty();
  const auto candidate = [&](std::size_t i) {
    const Verdict& verdict = selection.verdicts[i];
    return forced ? i == first : verdict.fits() && verdict.kernel->arithmetic() == arithmetic;
  };
  if (!options.tile.empty()) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < selection.verdicts.size(); ++i) {
      if (!candidate(i)) continue;
      for (const RankedTile& ranked : selection.verdicts[i].tiles) {
        names.push_back(ranked.tile.name);
        if (ranked.tile.name != options.tile) continue;
        selection.chosen = i;
        selection.tile = ranked;
        selection.why_tile = "asked for by name";
        return;
      }
    }
    throw Error(fmt::format("tile \"{}\": the kernel has none of that name for {}. It has: {}.",
                            options.tile, to_text(stage), fmt::join(names, ", ")));
  }
  if (tuning) {
    if (const TunedTile* row = tuning->find(machine, stage)) {
      for (std::size_t i = 0; i < selection.verdicts.size(); ++i) {
        if (!candidate(i) || selection.verdicts[i].kernel->name() != row->kernel) continue;
        for (const RankedTile& ranked : selection.verdicts[i].tiles) {
          if (ranked.tile.name != row->tile) continue;
          selection.chosen = i;
          selection.tile = ranked;
          selection.tuned = *row;
          selection.why_tile =
              row->shipped ? "the fastest in the table of measurements that comes with Convoy"
                           : "the fastest when `convoy tune` measured this stage on this machine";
          return;
        }
      }
    }
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < selection.verdicts.size(); ++i) {
    if (!candidate(i)) continue;
    const RankedTile& ranked = selection.verdicts[i].tiles.front();
    if (ranked.cost.seconds >= best) continue;
    best = ranked.cost.seconds;
    selection.chosen = i;
    selection.tile = ranked;
  }
  selection.why_tile = "the least predicted time among the tiles of this arithmetic";
}

}  // namespace

Machine machine_for(const PlanOptions& options) {
  check_threads(options.threads);
  if (options.device == Device{}) return cpu_machine(options.threads);
  if (options.device.kind != DeviceKind::cuda)
    throw Error(
        fmt::format("device {}: expected cpu, cuda or cuda:<number>", to_text(options.device)));
  return gpu::machine(options.device.index);
}

Stage canonical_stage(const Stage& stage, DeviceKind device) {
  Stage canonical = stage;
  canonical.n = 1;
  const Shapes one = shapes_of(canonical);
  const Index pixels = std::max<Index>(1, one.p * one.q);
  const Index enough = device == DeviceKind::cpu ? 4096 : 131072;
  canonical.n = std::clamp<Index>((enough + pixels - 1) / pixels, 1, 1024);
  // Huge images: more than one would overflow the size arithmetic.
  if (!problems(canonical).empty()) canonical.n = 1;
  return canonical;
}

Selection select(const Stage& stage, const Machine& machine, const PlanOptions& options,
                 const TuningCache* tuning) {
  shapes_of(stage);  // throws with every problem unless the stage is legal
  Selection selection;
  selection.canonical = canonical_stage(stage, machine.device.kind);
  Machine one_thread = machine;
  if (machine.device.kind == DeviceKind::cpu) one_thread = cpu_machine(1);
  for (const Kernel* kernel : kernel_table()) {
    if (kernel->device() != machine.device.kind) continue;
    selection.verdicts.push_back(judge(*kernel, stage, selection.canonical, machine, one_thread));
  }

  std::size_t first = selection.verdicts.size();
  if (!options.kernel.empty()) {
    first = forced_kernel(selection, stage, options);
    selection.why_arithmetic = "that of the kernel asked for by name";
  } else {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < selection.verdicts.size(); ++i) {
      const Verdict& verdict = selection.verdicts[i];
      if (!verdict.fits() || verdict.canonical_seconds >= best) continue;
      best = verdict.canonical_seconds;
      first = i;
    }
    if (first == selection.verdicts.size())
      throw Error(fmt::format("no kernel on {} can run {}:{}", to_text(machine.device),
                              to_text(stage), every_refusal(selection.verdicts)));
    selection.why_arithmetic = fmt::format(
        "that of {}, the fastest predicted for {}{} {}. Arithmetics are compared at "
        "that batch whatever n is, so results don't depend on n",
        selection.verdicts[first].kernel->name(),
        machine.device.kind == DeviceKind::cpu ? "one thread and " : "", selection.canonical.n,
        selection.canonical.n == 1 ? "image" : "images");
  }
  choose_tile(selection, first, stage, machine, options, tuning);
  return selection;
}

}  // namespace convoy
