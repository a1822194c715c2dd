// The constants of the cost models of what runs on every GPU, and of passes over memory; those of
// the Hopper families are in sm90/costs.hpp. Shares are of what the machine says of itself.
#pragma once

namespace convoy::cuda {

/// Of `general`, by hand, 2026-11: a thread an output, every load from a cache.
struct GeneralCosts {
  double launch = 5e-6;          // seconds
  double multiply_share = 0.01;  // of the fp32 units' peak
  double product = 0.15e-6;      // seconds that one thread takes for one, which waits for its loads
};

/// Of `depthwise`, by hand, 2026-11, to the stages of MobileNetV2 and some larger ones on an H200.
struct DepthwiseCosts {
  double launch = 0.6e-6;  // seconds
  // Instructions of a thread: all of it; of a pixel; of an output's channel beside its taps.
  double thread = 120, pixel = 5, output = 4;
  double any_filter = 3;       // factor, where the filter's size is not compiled in
  double latency = 3.5;        // cycles of a thread's instruction that nothing covers
  double issue_share = 0.8;    // of the instructions that a multiprocessor could start
  double memory_share = 0.57;  // of the memory's speed
};

/// Of `few_filters`, by its machine code and what a multiprocessor can do; two stages on an H200
/// took 4 % less and 10 % more.
struct FewFiltersCosts {
  double launch = 2.2e-6;  // seconds
  double clock = 0.85;     // share of the device's
  // A warp's instructions beside its products and their weights' loads: of a filter's row of taps
  // and of a pixel that it reads, of a tap alone, of a strip, of a strip's sum.
  double row = 10, row_pixel = 6.5, tap = 180, strip = 300, strip_filter = 40;
  double latency = 700;                      // cycles that a warp alone waits for a turn's loads
  double issue_share = 0.8, l1_share = 0.8;  // of what a multiprocessor can start, and load
  double l2_bytes = 28;                      // a cycle, of a multiprocessor
  double memory_share = 0.75;                // of the memory's speed
};

/// Of `fma`, by hand, 2026-11: instructions counted in its code, the rest to stages on an H200.
struct FmaCosts {
  double launch = 2.2e-6;  // seconds
  double clock = 0.9;      // share of the device's
  // Instructions of a thread: of a pixel's product that it brings, of f32 and of other types; of a
  // step, of a CTA, of an output's end.
  double copy = 15, copy_typed = 75, step = 60, cta = 1500, output = 10;
  double nchw = 4.5;  // factor of what pixels take, whose neighbouring products do not lie together
  double scattered = 1.2;  // cycles of an output, where fours of channels do not lie in one piece
  double issue_share = 0.85;   // of the instructions that a scheduler could start
  double wait = 500;           // cycles of a step that a CTA alone does not fill
  double memory_share = 0.65;  // of the memory's speed
};

/// Of `window`, by hand, 2026-11, to what it takes on an H200.
struct WindowCosts {
  double launch = 2.2e-6;  // seconds
  double clock = 0.8;      // share of the device's
  // The share of the Tensor Cores' peak that mma.sync reaches: before Hopper; on Hopper, whose peak
  // only wgmma reaches; on Hopper for f32.
  double share = 0.8, hopper_share = 0.66, hopper_f32_share = 0.45;
  double copied = 48, shown = 0.25;  // bytes a cycle that cp.async brings; the part that shows
  // Cycles: of a CTA, of one of sparse and one of narrow tiles; of a step, an output of the tile;
  // of a step of a CTA alone, and in it of each of a warp's products, of 16 bits and of f32.
  double cta = 1500, sparse_cta = 1250, narrow_cta = 900, step = 27, output = 0.05, alone = 125,
         alone_product = 9.75, alone_f32 = 230, alone_f32_product = 24.5;
  // Of sparse tiles of 16 bits: CTAs that a multiprocessor's registers hold, cycles of one, and the
  // part of the memory's time that shows beside them.
  int sparse_16_ctas = 4;
  double sparse_16_cta = 580, sparse_16_memory = 0.35;
  // What narrow tiles add to a step: copies of 8 bytes, of fewer by way of registers, and eight
  // warps instead of four; of a CTA of four warps alone.
  double narrow_8 = 146, narrow = 340, narrow_shared = 60, narrow_alone = 800;
  // Of tiles that take two steps between barriers: the part of the products' time that is left, and
  // cycles of a step, and of a CTA, whose first copies and last stores no other's products hide.
  double pairs = 0.81, pairs_step = 132, pairs_cta = 4500;
  double staged = 0.1;  // of an output, where pixels of y do not lie on 16 bytes
  double analytic = 1.6, precomputed = 1.4;  // factors of a step with these iterators
  double apart = 1.35;                       // likewise of one whose sums are added apart
  double memory = 0.7;                       // share of the memory's speed
  // Box tiles, fitted to 51 tiles of 17 stages. Cycles that a scheduler spends: per input row of a
  // warp, per copy in this row, per 32 rows of sums that are stored, per part of their products.
  // Then the share of the memory's speed.
  double box_row = 200, box_copy = 30, box_write = 200, box_part = 200, box_memory = 0.65;
};

/// Of `spike_resident`, by hand, 2026-11, to the shipped network on an H200, its layouts by its
/// batches: docs/lab/gpu-spiking.md.
struct ResidentCosts {
  double launch = 3.6e-6;  // seconds, with its prologue
  double image = 2500;     // cycles that a team's image takes beside its products
  // Cycles of a multiprocessor for an m16n8k16 product, and of one in a warp's row of them; the
  // same where the network is compiled in; both with small tasks so many times.
  double product = 7.8, in_a_row = 85;
  double known_product = 2.4, known_in_a_row = 10;
  double small_tasks = 1.6;
  double l2_bytes = 25;      // a cycle: of linear layers' weights, a multiprocessor's part
  double unit_products = 4;  // that making a unit of an image takes a lane as long as
  // Cycles of warpgroups: of three images side by side, of linear layers of 40.
  double warpgroup_images = 3600, warpgroup_linear = 7900;
  // The same with small tasks: seconds of a launch, or of CTAs that wait for others to end; cycles
  // of an image.
  double few_launch = 4.15e-6, few_image = 2370;
};

/// Of a pass over memory that a wrapper makes before or behind a kernel; by hand, 2026-11.
struct PassCosts {
  double launch = 2e-6;       // seconds: pools, activations and transpositions
  double memory_share = 0.8;  // of the memory's speed, likewise
  double copy_launch = 2e-6,
         copy_memory_share = 0.6;  // seconds, share: copies to other numbers of channels
};

/// Of the pass over sums in which neurons take their steps, by hand, 2026-11, to layers of a
/// spiking VGG-11 on an H200.
struct NeuronPassCosts {
  double launch = 3e-6;       // seconds
  double l2 = 20;             // bytes a cycle, a multiprocessor's part, while sums stay in the L2
  double held_share = 0.5;    // of the L2: sums up to this stay
  double memory_share = 0.8;  // of the memory's speed, else
};

}  // namespace convoy::cuda
