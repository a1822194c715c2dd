// How long a tile of the window family should take.
#include <algorithm>

#include "cuda/costs.hpp"
#include "cuda/family.hpp"
#include "cuda/sm80/window_tile.hpp"

namespace convoy::cuda::sm80 {

double window_waste(const Stage& stage, const WindowTile& tile) {
  const WindowSizes at = window_sizes(stage, tile);
  const double of_chunk = chunk_bytes / static_cast<double>(size_of(stage.dtype));
  const double done = 1.0 * at.m_tiles * tile.m * at.n_tiles * tile.n * at.steps * of_chunk;
  return std::max(0.0, 1 - static_cast<double>(shapes_of(stage).macs) / done);
}

double window_seconds(const Stage& stage, const WindowTile& tile, const Machine& machine) {
  const WindowCosts costs;
  const WindowSizes at = window_sizes(stage, tile);
  const bool f32 = stage.dtype == DType::f32;
  const double clock = costs.clock * machine.clock_hz;
  // Multiply-adds a cycle of a multiprocessor; tf32 at half the rate, three products for one.
  const double share = machine.compute_capability >= 90 ? costs.hopper_share : costs.share;
  const double rate = share * machine.tensor_flops / 2 / machine.multiprocessors / machine.clock_hz /
                      (f32 ? 6 : 1);
  const double of_chunk = chunk_bytes / static_cast<double>(size_of(stage.dtype));
  double copy = 1;
  if (tile.narrow) {
    const Index bytes = stage.c / stage.groups * static_cast<Index>(size_of(stage.dtype));
    copy = bytes % 8 == 0 ? costs.copies_of_8 : bytes % 4 == 0 ? costs.copies_of_4 : costs.copies_of_2;
  } else if (tile.visit != Visit::optimized) {
    copy = costs.other_visit;
  }
  const double math = tile.m * tile.n * of_chunk / rate;
  const double loads = (copy * tile.m + tile.n) * chunk_bytes / costs.copied;
  const double cta = costs.cta + at.steps * (std::max(math, loads) + costs.step) +
                     costs.output * tile.m * tile.n;
  const double turns = static_cast<double>(
      (Index{at.m_tiles} * at.n_tiles - 1) / machine.multiprocessors + 1);
  const double bytes = cost_of(stage, 0, 0).bytes / (costs.memory * machine.memory_bandwidth);
  return costs.launch + std::max(turns * cta / clock, bytes);
}

}  // namespace convoy::cuda::sm80
