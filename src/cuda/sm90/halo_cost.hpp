// The constants of the halo family's cost model.
#pragma once

#include "cuda/sm90/halo_tile.hpp"

namespace convoy::cuda::sm90 {

/// In cycles, and bytes a cycle, at the clock that an H200 holds under load.
/// bench/fit/halo_cost.cpp fits them to measured tiles so that what the model picks is fast; as
/// times they are of the order that in-kernel clocks show, no more.
struct HaloCosts {
  double clock = 1.558e9;
  // Rates: of the L2, of all CTAs together; of memory and of stores, of one.
  double l2 = 7575, memory = 23.45, store = 31.84;
  // Between two slabs, and what one tap in flight leaves uncovered: less by so much for each of its
  // cycles of math.
  double gap = 100.5, gap_resident = 77.55, gap_pingpong = 111.6;
  double uncovered = 333.9, covered = 5.552;
  double narrow = 1.03, several = 1.082;  // instructions below 64 columns; several of them
  // A slot or slab of a producer's time, how much more where each slab comes with a slot of its own
  // (a box a tap), a pixel of a box of the copy engine's, and how much more where every second
  // pixel is taken.
  double slot = 452.9, box_a_tap = 1.4, pixel = 3.079, skipping = 1.483;
  double hidden_loads = 0.1287;  // the part of hidden loads that shows as power: a slower clock
  double epilogue = 1383, epilogue_pixel = 1.451, epilogue_plain = 400.4;
  double crowded = 781.3, last_store = 1.536;
  double first_weights = 0.2071;  // the part of weights that stay that no math covers
};

/// Predicted seconds of one run with these constants.
double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                    const HaloCosts& costs);

}  // namespace convoy::cuda::sm90
