#include "bench/fit/measured_tiles.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace convoy::cuda::sm90 {

std::vector<MeasuredStage> measured_tiles(const std::string& path, const DeviceFacts& device) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": can't be read");
  const nlohmann::json result = nlohmann::json::parse(file);
  std::map<std::string, std::map<std::string, double>> times;
  for (const auto& row : result["rows"])
    for (const auto& tile : row["tiles"]) times[row["stage"]][tile[0]] = tile[1];
  std::vector<MeasuredStage> stages;
  for (const auto& [text, tiles] : times) {
    MeasuredStage measured{text, parse_stage(text), {}, 0};
    for (const HaloTile& tile : halo_tiles(measured.stage, device)) {
      const auto found = tiles.find("halo." + tile.name());
      if (found == tiles.end()) continue;
      measured.tiles.push_back({tile, halo_layout(measured.stage, tile, device), found->second});
    }
    if (measured.tiles.empty())
      throw std::runtime_error(text + ": none of its measured tiles exists; measure it again");
    measured.best = std::min_element(tiles.begin(), tiles.end(), [](const auto& a, const auto& b) {
                      return a.second < b.second;
                    })->second;
    stages.push_back(std::move(measured));
  }
  return stages;
}

const MeasuredTile& pick(const MeasuredStage& stage, const DeviceFacts& device,
                         const HaloCosts& costs) {
  const auto predicted = [&](const MeasuredTile& tile) {
    return halo_seconds(stage.stage, tile.tile, tile.layout, device, costs);
  };
  const MeasuredTile* best = nullptr;
  double least = 0;
  for (const MeasuredTile& tile : stage.tiles) {
    const double seconds = predicted(tile);
    if (best && seconds >= least) continue;
    best = &tile;
    least = seconds;
  }
  return *best;
}

Picks picks_of(const std::vector<MeasuredStage>& stages, const DeviceFacts& device,
               const HaloCosts& costs) {
  Picks picks;
  picks.stages = stages.size();
  for (const MeasuredStage& stage : stages) {
    const double ratio = pick(stage, device, costs).microseconds / stage.best;
    picks.mean += ratio / static_cast<double>(stages.size());
    picks.worst = std::max(picks.worst, ratio);
    if (ratio > 1.10) ++picks.slow;
  }
  return picks;
}

}  // namespace convoy::cuda::sm90
