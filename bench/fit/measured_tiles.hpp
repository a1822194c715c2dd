// Tiles of the halo family as measured by `convoy tune --dry-run --json`, and what a cost model
// picks among them.
#pragma once

#include <string>
#include <vector>

#include "cuda/sm90/halo_cost.hpp"

namespace convoy::cuda::sm90 {

struct MeasuredTile {
  HaloTile tile;
  HaloLayout layout;
  double microseconds;
};
struct MeasuredStage {
  std::string text;
  Stage stage;
  std::vector<MeasuredTile> tiles;
  double best;  // microseconds
};

/// A result's stages with those of their tiles that exist now. Of a stage's rows later ones, of
/// newer code, replace earlier. Throws std::runtime_error where the file cannot be read or none of
/// a stage's tiles exists any more.
std::vector<MeasuredStage> measured_tiles(const std::string& path, const DeviceFacts& device);

/// The tile of least predicted time.
const MeasuredTile& pick(const MeasuredStage& stage, const DeviceFacts& device,
                         const HaloCosts& costs);

/// What the picks take over the best tiles: on average, at worst, and how many take a tenth more.
struct Picks {
  double mean = 0, worst = 0;
  std::size_t stages = 0, slow = 0;
};
Picks picks_of(const std::vector<MeasuredStage>& stages, const DeviceFacts& device,
               const HaloCosts& costs);

}  // namespace convoy::cuda::sm90
