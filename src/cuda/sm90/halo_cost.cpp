// How long a tile of the halo family should take.
#include <algorithm>

#include "cuda/sm90/halo_tile.hpp"

namespace convoy::cuda::sm90 {

double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout) {
  // Cycles at the clock that the chip holds under load. The constants are a least-distance fit to
  // the tiles of bench/results/h200/tiles.json: of the order that in-kernel clocks show, no more.
  constexpr double clock = 1.558e9;
  constexpr double l2_bytes_a_cycle = 9767;                                    // of all CTAs
  constexpr double memory_bytes_a_cycle = 38.94, store_bytes_a_cycle = 53.97;  // of one
  const bool pingpong = tile.schedule == Schedule::pingpong, pool = stage.pool.has_value();
  const int n = tile.instruction_n(), pixels = n * tile.instructions();
  const double warpgroups = pingpong ? 1 : 2;

  // Math, and between two slabs what one tap in flight does not cover, and a gap in any case. The
  // fit's taps are of four steps.
  const int steps = halo_steps(stage, tile);
  const double step =
      std::max(n / 2.0, 32.0) * (n < 64 ? 1.042 : 1) * tile.instructions() * warpgroups;
  const double slabs = layout.slabs_a_tile(), slots = layout.slots_a_tile();
  const double gap = (!pingpong       ? 34.63
                      : tile.resident ? 25.89
                                      : 50.49) +
                     std::max(0.0, 292.9 - 4.278 * step * steps / 4);
  const double math =
      1.0 * steps * layout.chunks * layout.taps * step * (tile.instructions() > 1 ? 1.042 : 1) +
      slabs * gap;
  // All CTAs share the L2; each slot takes a producer's time, and each pixel of a box the copy
  // engine's, more where it takes every second. Loads that hide under the math still cost some: the
  // power that they take slows the clock. Among equals resident weights win: the last term only
  // orders them.
  const bool skips = stage.r == 1 && stage.s == 1;
  const double pixel = !skips && stage.stride != Extent{1} ? 1.518 * 2.67 : 2.67;
  const double boxes = static_cast<double>(layout.chunks) * layout.views * layout.x_bytes;
  const double weights = slabs * layout.w_slot, streamed = tile.resident ? 0 : weights;
  const double loads = (boxes + streamed) * layout.grid / l2_bytes_a_cycle;
  const double producing =
      std::max(391.1 * std::max(slots, tile.resident ? 0 : slabs), pixel * boxes / 128);
  const double tile_cycles = std::max({math, loads, producing}) + 0.02657 * std::min(math, loads) +
                             (tile.resident ? 0 : 1e-6 * loads);

  const double epilogue = 973.3 + 1.076 * pixels + (pool ? 0 : 501.7 * tile.instructions());
  const double store = warpgroups * (pool ? pixels / 4.0 : pixels) * 128 / store_bytes_a_cycle;
  const int turns = (layout.tiles() + layout.grid - 1) / layout.grid;
  // The last tile's store shows, and some of the load of weights that stay. A launch that leaves
  // half of the multiprocessors free lets the next one start there.
  double cycles = 703.2 + (layout.crowded ? 1100 : 0) + 1.738 * store;
  if (tile.resident) cycles += 0.05759 * weights * layout.grid / l2_bytes_a_cycle;
  // Two warpgroups in turns each need their own math and epilogue.
  const double pair = turns > 1 ? std::max((tile_cycles + epilogue) / 2, store) : 0;
  const double tiles = pingpong ? turns * std::max(tile_cycles, pair) + epilogue
                                : turns * std::max(tile_cycles + epilogue, store);
  // What the stage reads and writes hides under its tiles, or they under it, in part.
  const Shapes shapes = shapes_of(stage);
  const double memory = 2 *
                        (static_cast<double>(shapes.x_elements) /
                             static_cast<double>(skips ? stage.stride.h * stage.stride.w : 1) +
                         static_cast<double>(shapes.y_elements)) /
                        (memory_bytes_a_cycle * layout.grid);
  cycles += std::max(tiles, memory) + 0.4552 * std::min(tiles, memory);
  return cycles / clock;
}

}  // namespace convoy::cuda::sm90
