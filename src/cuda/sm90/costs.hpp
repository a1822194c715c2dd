// The constants of the Hopper families' cost models: all that was measured, in one place.
//
// Clocks and the memory's speed are shares of what the device says of itself (DeviceFacts), so that
// an H100 gets its own; the shares, and all cycles, come from an H200. Power, not the highest
// clock, limits it: which clock a load leaves is part of the load.
#pragma once

#include "cuda/device_facts.hpp"

namespace convoy::cuda::sm90 {

/// Highest clock of the H200 that was measured, Hz.
inline constexpr double measured_clock = 1.98e9;

/// A device under a load that leaves so large a share of its clock.
struct Loaded {
  double clock;   // Hz
  double memory;  // bytes a cycle, of the whole device
  Loaded(const DeviceFacts& device, double clock_share, double memory_share)
      : clock(clock_share * device.clock), memory(memory_share * device.memory_bandwidth / clock) {}
};

/// Fitted by bench/fit/halo_cost.cpp to measured tiles (bench/fit/h200/tiles.json) so that what
/// the model picks is fast; as times they are of the order that in-kernel clocks show, no more.
struct HaloCosts {
  double clock = 1.558e9 / measured_clock;  // share of the device's
  double memory = 1.00187;                  // share of the device's
  // Bytes a cycle: a multiprocessor's part of the L2, and of stores.
  double l2 = 57.386, store = 31.84;
  // Cycles: between two slabs, and what one tap in flight leaves uncovered: less by so much for
  // each of its cycles of math (cycles a cycle).
  double gap = 100.5, gap_resident = 77.55, gap_pingpong = 111.6;
  double uncovered = 333.9, covered = 5.552;
  double narrow = 1.03, several = 1.082;  // factors: instructions below 64 columns; several of them
  // Cycles of a producer for a slot or slab, how much more (factor) where each slab comes with a
  // slot of its own (a box a tap), cycles of the copy engine for a pixel of a box, and how much
  // more (factor) where every second pixel is taken.
  double slot = 452.9, box_a_tap = 1.4, pixel = 3.079, skipping = 1.483;
  double hidden_loads = 0.1287;  // the part of hidden loads that shows as power: a slower clock
  // Cycles: of a tile, of each of its pixels, of each instruction without a pool.
  double epilogue = 1383, epilogue_pixel = 1.451, epilogue_plain = 400.4;
  double neuron_pixel = 4;  // by estimate, not fitted: of a pixel's charge, spike and reset, a step
  // Cycles of a launch that no other can lie beside; the last store's part that shows (factor).
  double crowded = 781.3, last_store = 1.536;
  double first_weights = 0.2071;  // the part of weights that stay that no math covers
};

/// Of `pair`, by hand, 2026-11, to bench/results/h200/two-stages.json and the tiles behind it.
struct PairCosts {
  double clock = 1.45e9 / measured_clock;  // share of the device's
  double math = 0.8;                       // share of the second GEMM's full rate
  double block = 400;                      // cycles of the last tile for each 64 output channels
  // Weights that stay come to all CTAs at once: bytes a cycle that one can take, and a
  // multiprocessor's part of the L2, less than halo's: all ask for the same lines.
  double most_l2 = 60, l2 = 40.152;
};

/// Of `few`, by hand, 2026-11, to the stages of bench/results/h200 that it runs.
struct FewCosts {
  double clock = 1.7e9 / measured_clock;  // share of the device's
  double load = 0.85236;                  // share of the memory's speed that TMA loads reach
  double memory = 0.85;                   // share of the memory's speed that a whole run reaches
  double launch = 3e-6;                   // seconds
  double least_pixel = 3.2;               // cycles of a pixel of 64 channels that one CTA can load
  double tile = 800, tile_pixel = 2;      // cycles of a tile's sums
  double over_slots = 1500;               // cycles where a tile's sums lie over its slots
  double least_line = 1000,
         last_line = 500;  // cycles of a line of pixels, at least; of the last one
};

/// Of `first`, by hand, 2026-11, to the stages of bench/results/h200 that it runs
/// (tests/cuda/cost_test).
struct FirstCosts {
  double clock = 1.7e9 / measured_clock;  // share of the device's
  double memory = 0.78;                   // share of the memory's speed
  double launch = 2.45e-6;                // seconds
  double raw_unit = 2.72, unit = 5.61;    // cycles to rearrange 16 bytes: of TMA's rows, or of any
  double step = 158.1;                    // cycles of a k16 step of a block of 64 channels
  double pooled_block = 340, plain_block = 714;  // cycles of a block's epilogue
};

}  // namespace convoy::cuda::sm90
