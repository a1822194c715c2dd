#include "bench/fit/cpu_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "plan/kernel_table.hpp"
#include "plan/select.hpp"

namespace convoy::bench {
namespace {

Machine machine_of(const nlohmann::json& record) {
  Machine machine;
  machine.device.kind = DeviceKind::cpu;
  set_isa(machine, record.at("isa").get<std::string>());
  const nlohmann::json& cpu = record.at("cpu");
  machine.halves = cpu.at("halves");
  machine.mesh = cpu.at("mesh");
  machine.l1_bytes = cpu.at("l1_bytes");
  machine.l2_bytes = cpu.at("l2_bytes");
  machine.l3_bytes = cpu.at("l3_bytes");
  return with_threads(std::move(machine), record.at("threads"));
}

CpuStage stage_of(const nlohmann::json& row, const Machine& machine) {
  const std::string text = row.at("stage");
  CpuStage measured{text, parse_stage(text), machine, {}, 0};
  for (const auto& [name, tile_name, microseconds] :
       row.at("tiles").get<std::vector<std::tuple<std::string, std::string, double>>>()) {
    const Kernel* const kernel = find_kernel(name, DeviceKind::cpu);
    if (!kernel || !fits(*kernel, measured.stage, machine)) continue;
    for (Tile& tile : kernel->tiles(measured.stage, machine))
      if (tile.name == tile_name) measured.tiles.push_back({kernel, std::move(tile), microseconds});
  }
  if (measured.tiles.empty())
    throw std::runtime_error(text + ": none of its measured tiles exists; measure it again");
  measured.best = std::min_element(measured.tiles.begin(), measured.tiles.end(),
                                   [](const CpuTile& a, const CpuTile& b) {
                                     return a.microseconds < b.microseconds;
                                   })
                      ->microseconds;
  return measured;
}

}  // namespace

std::vector<CpuStage> cpu_tiles(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": can't be read");
  const nlohmann::json result = nlohmann::json::parse(file);
  const Machine machine = machine_of(result);
  std::vector<CpuStage> stages;
  for (const auto& row : result.at("rows")) stages.push_back(stage_of(row, machine));
  return stages;
}

Machine with_costs(const CpuStage& stage, const CoreCosts& costs) {
  Machine machine = stage.machine;
  machine.costs = &costs;
  const int threads = machine.threads;
  return with_threads(std::move(machine), threads);
}

std::vector<double> predicted_microseconds(const CpuStage& stage, const CoreCosts& costs) {
  const Machine machine = with_costs(stage, costs);
  std::vector<double> predicted;
  for (const CpuTile& tile : stage.tiles)
    predicted.push_back(1e6 * tile.kernel->cost(stage.stage, tile.tile, machine).seconds);
  return predicted;
}

CpuPick pick(const CpuStage& stage, const CoreCosts& costs) {
  const Selection selection = select(stage.stage, with_costs(stage, costs), {}, nullptr);
  CpuPick pick{std::string(selection.kernel().name()), selection.tile.tile.name, 0, false};
  for (const CpuTile& tile : stage.tiles) {
    const bool chosen = tile.kernel == &selection.kernel() && tile.tile == selection.tile.tile;
    if (chosen || !pick.measured)
      pick.microseconds =
          chosen ? tile.microseconds : std::max(pick.microseconds, tile.microseconds);
    pick.measured = pick.measured || chosen;
  }
  return pick;
}

CpuRegret regret(const std::vector<CpuStage>& stages, const CoreCosts& costs) {
  CpuRegret regret;
  double logs = 0;
  for (const CpuStage& stage : stages) {
    const double over = pick(stage, costs).microseconds / stage.best;
    logs += std::log(over);
    regret.worst = std::max(regret.worst, over);
  }
  regret.mean = std::exp(logs / static_cast<double>(stages.size()));
  return regret;
}

}  // namespace convoy::bench
