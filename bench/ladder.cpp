#include "bench/ladder.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/chains.hpp"
#include "bench/race.hpp"
#include "bench/runs.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"

namespace convoy::bench {
namespace {

/// Finds or adds a kernel and tile; -1 where the kernel refuses the stage or has no such tile.
std::ptrdiff_t take_part(std::vector<Climber>& climbers, std::string_view name,
                         std::string_view tile, const Stage& stage, const Machine& machine) {
  const Kernel* const kernel = find_kernel(name, machine.device.kind);
  if (kernel == nullptr || !kernel->refusals(stage, machine).empty()) return -1;
  const std::vector<Tile> tiles = kernel->tiles(stage, machine);
  const auto found = std::find_if(tiles.begin(), tiles.end(), [&](const Tile& one) {
    return tile.empty() || one.name == tile;
  });
  if (found == tiles.end()) return -1;
  for (std::size_t i = 0; i < climbers.size(); ++i)
    if (climbers[i].kernel == kernel && climbers[i].tile.name == found->name)
      return static_cast<std::ptrdiff_t>(i);
  climbers.push_back({kernel, *found, {}, 0, {}});
  return static_cast<std::ptrdiff_t>(climbers.size()) - 1;
}

/// The rungs that take the stage, and what lacks one of them.
void find_climbers(Ladder& ladder, const Stage& stage, const Machine& machine) {
  for (const Kernel* kernel : kernel_table()) {
    const Rung* const rung = kernel->facts().rung;
    if (rung == nullptr || kernel->device() != machine.device.kind) continue;
    const auto at = take_part(ladder.climbers, kernel->name(), {}, stage, machine);
    if (at >= 0)
      ladder.rows.push_back({rung, static_cast<std::size_t>(at), 0, -1, 0});
    else
      ladder.left_out.push_back(
          fmt::format("{}: {}", kernel->name(), fmt::join(kernel->refusals(stage, machine), "; ")));
  }
  if (ladder.rows.empty())
    throw Error(fmt::format("{}: no rung can run it. {}", to_text(stage),
                            ladder.left_out.empty() ? "" : ladder.left_out.front()));
  for (LadderRow& row : ladder.rows)
    if (!row.rung->without_kernel.empty())
      row.without = take_part(ladder.climbers, row.rung->without_kernel, row.rung->without_tile,
                              stage, machine);
}

std::vector<GpuResources> resources_of(const Climber& climber, const Stage& stage,
                                       const Machine& machine) {
  return climber.kernel->prepare(stage, climber.tile, machine)->gpu_resources();
}

/// The rung that all the ones without something are variants of.
const Climber* whole(const Ladder& ladder) {
  for (const LadderRow& row : ladder.rows)
    if (row.rung->without_kernel == ladder.climbers[row.climber].kernel->name())
      return &ladder.climbers[row.climber];
  return nullptr;
}

void add_factors(Ladder& ladder) {
  const Climber* const all = whole(ladder);
  const LadderRow* below = nullptr;
  for (LadderRow& row : ladder.rows) {
    const double time = ladder.climbers[row.climber].timing.median;
    if (below != nullptr) row.factor = ladder.climbers[below->climber].timing.median / time;
    if (row.without >= 0 && all != nullptr)
      row.without_factor =
          ladder.climbers[static_cast<std::size_t>(row.without)].timing.median / all->timing.median;
    below = &row;
  }
}

nlohmann::ordered_json to_json(const Climber& climber, const Ladder& ladder) {
  auto launches = nlohmann::ordered_json::array();
  for (const GpuResources& of : climber.resources)
    launches.push_back({{"kernel", of.kernel},
                        {"registers", of.registers},
                        {"spilled_bytes", of.spilled_bytes},
                        {"threads", of.threads},
                        {"shared_bytes", of.shared_bytes},
                        {"ctas", of.ctas},
                        {"occupancy", of.occupancy}});
  const double flops = ladder.flops / climber.timing.median;
  return {{"kernel", climber.kernel->name()},
          {"tile", climber.tile.name},
          {"median_us", 1e6 * climber.timing.median},
          {"minimum_us", 1e6 * climber.timing.minimum},
          {"spread", climber.timing.spread},
          {"tflops", 1e-12 * flops},
          {"share_of_peak", flops / ladder.peak_flops},
          {"error", climber.error},
          {"launches", std::move(launches)}};
}

std::string factor_text(double factor) {
  return factor > 0 ? fmt::format("{:.2f}", factor) : "";
}

}  // namespace

std::vector<Stage> ladder_stages() {
  std::vector<Stage> stages;
  // Large tiles with few and with many products; medium tiles; channels that are no eights.
  for (const char* text :
       {"f16:n32h56c64k128r3pad1+bias+relu+keep(pre)",
        "f16:n32h28c256k256r3pad1+bias+relu+keep(pre)",
        "f16:n64h32c32k48r3pad1+bias+relu+keep(pre)", "f16:n32h56c67k67r3pad1+bias+relu+keep(pre)"})
    stages.push_back(parse_stage(text));
  return stages;
}

Ladder climb(const Stage& stage, const Options& options) {
  const Machine machine = machine_for(options.plan);
  Ladder ladder;
  ladder.stage = to_text(stage);
  ladder.flops = flops_of(stage);
  find_climbers(ladder, stage, machine);
  const Problem problem(stage);
  std::vector<std::unique_ptr<Runs>> all;
  Race race(options, ladder.climbers.size());
  for (Climber& climber : ladder.climbers) {
    if (options.progress)
      options.progress(fmt::format("checking {} {}", climber.kernel->name(), climber.tile.name));
    PlanOptions plan = options.plan;
    plan.kernel = climber.kernel->name();
    plan.tile = climber.tile.name;
    plan.use_tuning = false;
    all.push_back(make_runs(stage, problem, plan, options.seconds_per_turn));
    Runs* const runs = all.back().get();
    climber.error = runs->error();
    climber.resources = resources_of(climber, stage, machine);
    race.add({.turn = [runs, &options] { return runs->turn(options.seconds_per_turn); }});
  }
  race.run(ladder.stage, [&] { return all.front()->peak_flops(); });
  for (std::size_t i = 0; i < ladder.climbers.size(); ++i) {
    Row row;
    race.fill(row, i);
    ladder.climbers[i].timing = row.ours;
    ladder.peak_flops = 1e9 * row.peak_gflops;
    ladder.rounds = row.rounds;
    ladder.quiet = row.quiet;
  }
  ladder.clock_ghz = 1e-9 * ladder.peak_flops / all.front()->flops_a_cycle();
  add_factors(ladder);
  return ladder;
}

nlohmann::ordered_json to_json(const Ladder& ladder) {
  auto rows = nlohmann::ordered_json::array();
  for (const LadderRow& row : ladder.rows) {
    nlohmann::ordered_json one = to_json(ladder.climbers[row.climber], ladder);
    one["adds"] = row.rung->adds;
    if (row.rung->claimed > 0) one["claimed"] = row.rung->claimed;
    if (row.factor > 0) one["factor"] = row.factor;
    if (row.without >= 0) {
      one["without"] = to_json(ladder.climbers[static_cast<std::size_t>(row.without)], ladder);
      one["without"]["factor"] = row.without_factor;
    }
    rows.push_back(std::move(one));
  }
  return {{"stage", ladder.stage}, {"clock_ghz", ladder.clock_ghz}, {"rounds", ladder.rounds},
          {"quiet", ladder.quiet}, {"left_out", ladder.left_out},   {"rungs", std::move(rows)}};
}

std::string to_table(const Ladder& ladder) {
  std::string text = fmt::format(
      "{}\n{:<18} {:>9} {:>9} {:>7} {:>8} {:>6} {:>6} {:>7} {:>9} {:>5} "
      "{:>7} {:>7} {:>5} {:>5}  {}\n",
      ladder.stage, "kernel", "median us", "min us", "spread", "TFLOP/s", "factor", "claim",
      "without", "error", "regs", "spilled", "shared", "CTAs", "occ.", "adds");
  for (const LadderRow& row : ladder.rows) {
    const Climber& climber = ladder.climbers[row.climber];
    const GpuResources of = climber.resources.empty() ? GpuResources{} : climber.resources.front();
    text += fmt::format(
        "{:<18} {:>9.1f} {:>9.1f} {:>6.1f}% {:>8.1f} {:>6} {:>6} {:>7} {:>9.1e} {:>5} {:>7} {:>7} "
        "{:>5} {:>4.0f}%  {}\n",
        climber.kernel->name(), 1e6 * climber.timing.median, 1e6 * climber.timing.minimum,
        100 * climber.timing.spread, 1e-12 * ladder.flops / climber.timing.median,
        factor_text(row.factor), factor_text(row.rung->claimed), factor_text(row.without_factor),
        climber.error, of.registers, of.spilled_bytes, of.shared_bytes, of.ctas, 100 * of.occupancy,
        row.rung->adds);
  }
  for (const std::string& why : ladder.left_out) text += "left out: " + why + "\n";
  if (!ladder.quiet) text += fmt::format("noisy: not settled after {} rounds\n", ladder.rounds);
  return text;
}

}  // namespace convoy::bench
