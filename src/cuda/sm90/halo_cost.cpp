// How long a tile of the halo family should take.
#include "cuda/sm90/halo_cost.hpp"

#include <algorithm>

namespace convoy::cuda::sm90 {

double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                    const HaloCosts& costs) {
  const bool pingpong = tile.schedule == Schedule::pingpong, pool = stage.pool.has_value();
  const int n = tile.instruction_n(), pixels = n * tile.instructions();
  const double warpgroups = pingpong ? 1 : 2;

  // Math, and between two slabs what one tap in flight does not cover, and a gap in any case. The
  // fit's taps are of four steps.
  const int steps = halo_steps(stage, tile);
  const double step =
      std::max(n / 2.0, 32.0) * (n < 64 ? costs.narrow : 1) * tile.instructions() * warpgroups;
  const double slabs = layout.slabs_a_tile(), slots = layout.slots_a_tile();
  const double gap = (!pingpong       ? costs.gap
                      : tile.resident ? costs.gap_resident
                                      : costs.gap_pingpong) +
                     std::max(0.0, costs.uncovered - costs.covered * step * steps / 4);
  const double math = 1.0 * steps * layout.chunks * layout.taps * step *
                          (tile.instructions() > 1 ? costs.several : 1) +
                      slabs * gap;
  // All CTAs share the L2; each slot takes a producer's time, and each pixel of a box the copy
  // engine's. Among equals resident weights win: the last term only orders them.
  const bool skips = stage.r == 1 && stage.s == 1;
  const double pixel =
      !skips && stage.stride != Extent{1} ? costs.skipping * costs.pixel : costs.pixel;
  const double boxes = static_cast<double>(layout.chunks) * layout.views * layout.x_bytes;
  const double weights = slabs * layout.w_slot, streamed = tile.resident ? 0 : weights;
  const double loads = (boxes + streamed) * layout.grid / costs.l2;
  const bool box_a_tap = !tile.resident && layout.taps > 1 && layout.views == layout.taps;
  const double producing = std::max(
      (box_a_tap ? costs.box_a_tap : 1) * costs.slot * std::max(slots, tile.resident ? 0 : slabs),
      pixel * boxes / 128);
  const double tile_cycles = std::max({math, loads, producing}) +
                             costs.hidden_loads * std::min(math, loads) +
                             (tile.resident ? 0 : 1e-6 * loads);

  const double epilogue = costs.epilogue + costs.epilogue_pixel * pixels +
                          (pool ? 0 : costs.epilogue_plain * tile.instructions());
  const double store = warpgroups * (pool ? pixels / 4.0 : pixels) * 128 / costs.store;
  const auto turns = static_cast<double>((layout.tiles() + layout.grid - 1) / layout.grid);
  // The last tile's store shows, and some of the load of weights that stay. A launch that leaves
  // half of the multiprocessors free lets the next one start there.
  double cycles = (layout.crowded ? costs.crowded : 0) + costs.last_store * store;
  if (tile.resident) cycles += costs.first_weights * weights * layout.grid / costs.l2;
  // Two warpgroups in turns each need their own math and epilogue.
  const double pair = turns > 1 ? std::max((tile_cycles + epilogue) / 2, store) : 0;
  const double tiles = pingpong ? turns * std::max(tile_cycles, pair) + epilogue
                                : turns * std::max(tile_cycles + epilogue, store);
  // What the stage reads and writes hides under its tiles, or they under it.
  const Shapes shapes = shapes_of(stage);
  const double memory = 2 *
                        (static_cast<double>(shapes.x_elements) /
                             static_cast<double>(skips ? stage.stride.h * stage.stride.w : 1) +
                         static_cast<double>(shapes.y_elements)) /
                        (costs.memory * layout.grid);
  cycles += std::max(tiles, memory);
  return cycles / costs.clock;
}

double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout) {
  return halo_seconds(stage, tile, layout, HaloCosts());
}

}  // namespace convoy::cuda::sm90
