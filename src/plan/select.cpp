#include "plan/select.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "convoy/error.hpp"
#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "plan/parts.hpp"

namespace convoy {
namespace {

// A time that is none would win every comparison, or lose it, without a word.
void check_cost(const Kernel& kernel, const Chain& chain, const Tile& tile, const Cost& cost,
                const Machine& machine) {
  const auto is_fine = [](double v) { return std::isfinite(v) && v >= 0; };
  if (is_fine(cost.seconds) && cost.seconds > 0 && is_fine(cost.flops) && is_fine(cost.bytes) &&
      is_fine(cost.waste))
    return;
  throw InternalError(fmt::format(
      "planner: kernel {} with tile {} predicts {} seconds, {} operations, {} bytes and a waste of "
      "{} for {}, expected numbers above 0. The prediction is for {}: {} FLOP/s, {} bytes/s, {} "
      "Hz. If one of these is not a number, the fault is in the driver or in Convoy: report this, "
      "and plan with another kernel (PlanOptions::kernel).",
      kernel.name(), tile.name, cost.seconds, cost.flops, cost.bytes, cost.waste, to_text(chain),
      to_text(machine.device), machine.peak_flops, machine.memory_bandwidth, machine.clock_hz));
}

// A maximum with what is no number can hide it: cost models are not asked.
void check_machine(const Machine& machine) {
  if (machine.device.kind != DeviceKind::cuda) return;
  const auto is_fine = [](double v) { return std::isfinite(v) && v > 0; };
  if (is_fine(machine.peak_flops) && is_fine(machine.tensor_flops) &&
      is_fine(machine.memory_bandwidth) && is_fine(machine.clock_hz))
    return;
  throw InternalError(
      fmt::format("planner: the facts of {} ({}) are {} FLOP/s, {} on tensor cores, {} bytes/s and "
                  "{} Hz, expected numbers above 0. Make the machine with machine_of, which "
                  "estimates facts that a driver does not give.",
                  to_text(machine.device), machine.name, machine.peak_flops, machine.tensor_flops,
                  machine.memory_bandwidth, machine.clock_hz));
}

}  // namespace

std::vector<RankedTile> rank(const Kernel& kernel, const Chain& chain, const Machine& machine) {
  std::vector<RankedTile> ranked;
  const Parts parts = part_of(kernel, chain, machine);
  for (Tile& tile : tiles_of_part(kernel, chain, parts, machine)) {
    const Cost cost = cost_in_parts(kernel, chain, parts, tile, machine);
    check_cost(kernel, chain, tile, cost, machine);
    ranked.push_back({std::move(tile), cost});
  }
  // Stable: the family's own order breaks ties, so the answer does not depend on the library's
  // sort.
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedTile& a, const RankedTile& b) {
    return a.cost.seconds < b.cost.seconds;
  });
  return ranked;
}

namespace {

std::vector<std::string> names_of_fitting(const std::vector<Verdict>& verdicts) {
  std::vector<std::string> names;
  for (const Verdict& verdict : verdicts)
    if (verdict.fits()) names.emplace_back(verdict.kernel->name());
  return names;
}

// Of a chain by the kernels for chains: that the others run one stage goes without saying.
std::string every_refusal(const std::vector<Verdict>& verdicts, const Chain& chain) {
  const bool one = is_one_stage(chain);
  std::string text;
  for (const Verdict& verdict : verdicts)
    if (one || is_for_chains(*verdict.kernel))
      text += fmt::format("\n  {}: {}", verdict.kernel->name(), fmt::join(verdict.refusals, "; "));
  if (text.empty()) text = " each of its kernels runs one stage";
  return text;
}

// Whether the kernel's verdict on the chain is worth a line.
bool concerns(const Kernel& kernel, const Chain& chain, const Machine& machine) {
  return kernel.device() == machine.device.kind && kernel.facts().least_stages <= chain.size() &&
         (chain.constants || !kernel.facts().folds || !is_one_stage(chain));
}

// Why the kernel may not run the chain; empty: it may.
std::vector<std::string> refusals_of(const Kernel& kernel, const Chain& chain,
                                     const Machine& machine) {
  // Of one image: n decides neither the kernel nor the bits (parts.hpp).
  std::vector<std::string> refusals = refusals_of_an_image(kernel, chain, machine);
  if (kernel.facts().folds && !chain.constants)
    refusals.push_back(
        "it folds bias into its weights: the chain must begin with \"constants > \", as the chains "
        "of networks do");
  if (chain.exact() && !kernel.exact()) {
    const bool asked = std::any_of(chain.stages.begin(), chain.stages.end(),
                                   [](const Stage& stage) { return stage.strict; });
    refusals.push_back(
        fmt::format("its arithmetic ({}) is not exact on small integers, which {} asks for",
                    kernel.arithmetic(), asked ? "+strict" : "a neuron"));
  }
  return refusals;
}

Verdict judge(const Kernel& kernel, const Chain& chain, const Chain& canonical,
              const Machine& machine, const Machine& one_thread, const PlanOptions& options) {
  Verdict verdict{&kernel, refusals_of(kernel, chain, machine), 0, 0, {}};
  if (kernel.facts().by_name_only && options.kernel != kernel.name())
    verdict.refusals.push_back(fmt::format("runs only if you name it: --kernel {}", kernel.name()));
  if (!verdict.fits()) return verdict;
  verdict.canonical_seconds = rank(kernel, canonical, one_thread).front().cost.seconds;
  verdict.compared_seconds = verdict.canonical_seconds;
  // A GPU's kernels differ most on one image, which waits for launches and a few CTAs.
  if (machine.device.kind == DeviceKind::cuda)
    verdict.compared_seconds =
        std::sqrt(verdict.canonical_seconds *
                  rank(kernel, with_images(chain, 1), machine).front().cost.seconds);
  verdict.tiles = rank(kernel, chain, machine);
  return verdict;
}

// The forced kernel, or the arithmetic's.
std::size_t forced_kernel(const Selection& selection, const Chain& chain,
                          const PlanOptions& options) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < selection.verdicts.size(); ++i) {
    const Verdict& verdict = selection.verdicts[i];
    names.emplace_back(verdict.kernel->name());
    if (verdict.kernel->name() != options.kernel) continue;
    if (verdict.fits()) return i;
    throw Unsupported(fmt::format("kernel {} can't run {}: {}. Kernels that can: {}.",
                                  options.kernel, to_text(chain), fmt::join(verdict.refusals, "; "),
                                  fmt::join(names_of_fitting(selection.verdicts), ", ")));
  }
  std::string missing;
  if (is_teaching_kernel(options.kernel) && !find_kernel(options.kernel, DeviceKind::cuda))
    missing = fmt::format(
        " It is a teaching kernel for GPUs: the program convoy of a build with CUDA contains it, "
        "and "
        "libconvoy does not. Run convoy bench --device cuda --kernel {}, or link convoy_teaching "
        "as "
        "docs/learn/ladder.md says.",
        options.kernel);
  throw Error(
      fmt::format("kernel \"{}\": found no kernel of that name on {}, expected one of: {}.{}",
                  options.kernel, to_text(options.device), fmt::join(names, ", "), missing));
}

void choose_tile(Selection& selection, std::size_t first, const Chain& chain,
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
    throw Error(
        fmt::format("tile \"{}\": the kernel has no tile of that name for {}, expected one of: {}.",
                    options.tile, to_text(chain), fmt::join(names, ", ")));
  }
  if (tuning) {
    if (const TunedTile* row = tuning->find(machine, chain)) {
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
  selection.why_tile = "the smallest predicted time among the tiles of this arithmetic";
}

// As many threads as are predicted to be fastest: of all of them, a half, a quarter and so on.
// Plans whose runs may have any number of images use all.
void choose_threads(Selection& selection, const Chain& chain, const Machine& machine,
                    const PlanOptions& options) {
  const Kernel& kernel = selection.kernel();
  selection.threads = machine.threads;
  if (options.all_threads || kernel.facts().any_n) return;
  for (int threads = machine.threads / 2; threads >= 1; threads /= 2) {
    const Cost cost =
        cost_in_parts(kernel, chain, selection.tile.tile, with_threads(machine, threads));
    if (cost.seconds >= selection.tile.cost.seconds) continue;
    selection.threads = threads;
    selection.tile.cost = cost;
  }
}

}  // namespace

Machine running(const Machine& machine, const Selection& selection) {
  const bool all = selection.threads == 0 || selection.threads == machine.threads;
  return all ? machine : with_threads(machine, selection.threads);
}

Machine machine_for(const PlanOptions& options) {
  check_threads(options.threads);
  if (options.device == Device{}) return cpu_machine(options.threads);
  if (options.device.kind != DeviceKind::cuda)
    throw Error(
        fmt::format("device {}: expected cpu, cuda or cuda:<number>", to_text(options.device)));
  return gpu::machine(options.device.index);
}

OwnedChain canonical_chain(const Chain& chain, DeviceKind device) {
  const Shapes shapes = shapes_of(chain.front());
  const Index pixels = std::max<Index>(1, shapes.p * shapes.q);
  const Index enough = device == DeviceKind::cpu ? 4096 : 131072;
  const Index n = std::clamp<Index>((enough + pixels - 1) / pixels, 1, 1024);
  OwnedChain canonical = with_images(chain, n);
  if (n <= chain.front().n) return canonical;
  // Huge images: more than one would overflow the size arithmetic.
  for (const Stage& stage : canonical.stages)
    if (!problems(stage).empty()) return with_images(chain, 1);
  return canonical;
}

bool fits(const Kernel& kernel, const Chain& chain, const Machine& machine) {
  return concerns(kernel, chain, machine) && refusals_of(kernel, chain, machine).empty();
}

Selection select(const Chain& chain, const Machine& machine, const PlanOptions& options,
                 const TuningCache* tuning, std::span<const Kernel* const> kernels) {
  check(chain, machine.device.kind == DeviceKind::cuda);
  check_machine(machine);
  Selection selection;
  selection.canonical = canonical_chain(chain, machine.device.kind);
  Machine one_thread = machine;
  if (machine.device.kind == DeviceKind::cpu) one_thread = with_threads(machine, 1);
  for (const Kernel* kernel : kernels) {
    if (!concerns(*kernel, chain, machine)) continue;
    selection.verdicts.push_back(
        judge(*kernel, chain, selection.canonical, machine, one_thread, options));
  }

  std::size_t first = selection.verdicts.size();
  if (!options.kernel.empty()) {
    first = forced_kernel(selection, chain, options);
    selection.why_arithmetic = "that of the kernel asked for by name";
  } else {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < selection.verdicts.size(); ++i) {
      const Verdict& verdict = selection.verdicts[i];
      if (!verdict.fits() || verdict.compared_seconds >= best) continue;
      best = verdict.compared_seconds;
      first = i;
    }
    if (first == selection.verdicts.size())
      throw Unsupported(fmt::format("no kernel on {} can run {}:{}", to_text(machine.device),
                                    to_text(chain), every_refusal(selection.verdicts, chain)));
    const Index images = selection.canonical.stages.front().n;
    const bool cpu = machine.device.kind == DeviceKind::cpu;
    selection.why_arithmetic = fmt::format(
        "that of {}, the fastest predicted for {}{} {}{}. Arithmetics are compared at {} whatever "
        "n "
        "is, so results don't depend on n",
        selection.verdicts[first].kernel->name(), cpu ? "one thread and " : "", images,
        images == 1 ? "image" : "images", cpu ? "" : " and for one, by the geometric mean",
        cpu ? "that batch" : "those batches");
  }
  choose_tile(selection, first, chain, machine, options, tuning);
  choose_threads(selection, chain, machine, options);
  return selection;
}

}  // namespace convoy
