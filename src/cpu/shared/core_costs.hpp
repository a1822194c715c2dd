// What the cost models of the CPU's kernels take from measurements: one table a class of cores.
//
// What two classes share stands here, what one has of its own in core_costs.cpp. All were set by
// hand on the day that a class's `fitted` says (2026-11-23), but where a comment says another.
// `fit_cpu_cost` (bench/fit/cpu_cost.cpp) fits each but the clock to measured tiles; what it gave
// was not taken: docs/lab/cpu-cost-model.md.
//
// A name says the unit: `_seconds`; `_cycles`, of `clock` and one thread; `_a_cycle`, loads or
// bytes in one; `_steps`, of the loop over channels and taps; `_flops`, operations; `_share`, of a
// peak, and `_speed`, of a bandwidth, which are factors.
#pragma once

#include <string_view>

#include "core/machine.hpp"

namespace convoy {

struct CoreCosts {
  std::string_view cores;   // which
  std::string_view fitted;  // by what, and when

  // Rates. Only their ratios matter to a choice; `explain` and `bench` measure the real ones.
  double clock = 3.0e9;            // Hz
  double thread_bandwidth = 12e9;  // bytes/s that a thread moves to and from memory
  double memory_bandwidth = 48e9;  // bytes/s that all threads do, at most, without a mesh
  double run_seconds = 5e-7;       // of a run of one thread, beside its work
  // A parallel loop that begins where another has just ended: 0.9e-6 with two threads of a Golden
  // Cove server, 5.6e-6 with sixteen. Where threads sleep it takes four times as long.
  double loop_seconds = 2.5e-6;
  double loop_thread_seconds = 2.5e-7;  // of it, for each thread
  double pool_vector_cycles = 2.5;      // cycles a vector of sums that a pool reads again

  // By hand; fit_cpu_cost. A step is a channel of a tap for all of a tile's pixels.
  struct Direct {
    double multiply_share = 0.98;       // of the peak: long sums
    double tile_steps = 5;              // steps a tile: lists, bias, activation and stores
    double loads_a_cycle = 1.7;         // loads, beside multiply-adds
    double row_loads_a_cycle = 1.7;     // likewise in rows, whose places are not loaded
    double load_cycles = 0.03;          // cycles that a load takes besides
    double row_load_cycles = 0.03;      // likewise in rows
    double weight_bytes_a_cycle = 10;   // bytes of weights that take much of L2
    double fetched_bytes_a_cycle = 24;  // bytes of those that wide tiles fetch ahead
    double pack_vector_cycles = 4;      // cycles a vector of input, packed
  } direct;

  // By hand; fit_cpu_cost. A step is a product of all of a tile's pixels.
  struct TapPairs {
    double multiply_share = 0.945;     // of the peak: long sums
    double sum_steps = 5;              // steps a tile and a sum, besides
    double loads_a_cycle = 1.7;        // loads, beside multiply-adds
    double load_cycles = 0.1;          // cycles that a load takes besides
    double deep_weight_cycles = 0.04;  // cycles a weight that L1 does not hold, besides
    // Cycles a vector of outputs: nine loads, ten additions, bias, activation, four stores.
    double output_vector_cycles = 24;
    double pack_vector_cycles = 16;  // cycles a vector of input: packing and differences
    // Bytes of weights that L2 does not hold: those that L3 has room for, and others. A mesh delays
    // the multiply-adds; a near L3 streams behind them.
    double near_bytes_a_cycle = 16, far_bytes_a_cycle = 8;
  } tap_pairs;

  // By hand; fit_cpu_cost.
  struct Winograd {
    double multiply_share = 0.97;  // of the peak: GEMMs
    double transform_share = 1;    // of the peak: transforms, whose pace loads and stores set
    // Operations a number through its transform, at that pace.
    double input_flops = 16, input_stride2_flops = 12, output_flops = 9, filter_flops = 16;
    double loop_seconds = 5e-6;   // of a parallel loop, besides
    double hiding_sums = 8;       // sums that hide the latency of a multiply-add
    double half_panel_sums = 20;  // sums, likewise of half a panel, which has more loads
    // Multiples of thread_bandwidth, or where all threads share it of memory_bandwidth. Input and
    // output:
    double stream_speed = 3;
    // U that L2 does not hold: near is that of so many L2s, or if that is 0 of a quarter of L3.
    double u_near_l2s = 0, u_near_speed = 24, u_l3_speed = 6, u_memory_speed = 3;
    // V that L2 does not hold, which is read once for each panel: of a thread's own, and that
    // others wrote as well.
    double v_near_speed = 12, v_far_speed = 4, v_shared_speed = 5;
    double others_speed = 1;  // a thread's first look through a mesh at what others wrote of it
  } winograd;

  // By hand; fit_cpu_cost. A step is a multiply-add of a vector, two a cycle.
  struct First {
    double multiply_share = 0.95;     // of the peak: taps
    double vector_steps = 3;          // steps a vector: bias, activation and store
    double pack_float_cycles = 0.25;  // cycles a number of input, packed
  } first;

  // By hand; fit_cpu_cost. A step is a multiply-add of a vector at the peak.
  struct FirstWinograd2 {
    double product_steps = 1.2;                          // steps a product, which waits for loads
    double single_steps = 1.8;                           // likewise of tiles of one vector
    double pooled_output_steps = 16, output_steps = 30;  // steps a tile and vector
    double transform_channel_steps = 5, transform_steps = 6;  // steps a tile
  } first_winograd2;

  // By hand; fit_cpu_cost.
  struct FewFilters {
    double loads_a_cycle = 2;   // loads
    double single_pixel = 1.4;  // a step's factor: few sums don't hide the latency
    double tap_cycles = 15;     // cycles a tap and tile: pointers
    double sum_cycles = 4;      // cycles a sum: its lanes, added
    double tile_cycles = 60;    // cycles a tile
    double pool_cycles = 2;     // cycles a value of a window
  } few_filters;

  // By hand, from the loops. fit_cpu_cost knows it, but its tiles are of single stages.
  struct SpikeChain {
    // Multiply-adds a second, of the fp32 peak's. A table row of 16 sums is added where direct
    // kernels do 8 times 16 multiply-adds (4 times in a linear layer), at about a quarter of their
    // rate; the first layer multiplies pairs of 16-bit numbers at twice the rate of fp32.
    double multiply_speed = 2;
  } spike_chain;

  // By hand; fit_cpu_cost. A step is a multiply-add of a vector at the peak.
  struct Depthwise {
    double tap_steps = 1.3, vector_steps = 8;  // steps a tap, and a vector of outputs besides
  } depthwise;

  // By hand, 2026-11-26; fit_cpu_cost. A step is a multiply-add of a vector at the peak.
  struct Grouped {
    // Steps a product, whose channels are picked from one vector or from two, by one instruction
    // or by three; a tap, which loads them; and a vector of outputs besides.
    double product_steps = 1.5, product_of_two_steps = 2.9, tap_steps = 1, vector_steps = 8;
  } grouped;

  // By hand; fit_cpu_cost.
  struct General {
    double multiply_share = 0.8;      // of the peak: long sums
    double tap_channels = 5;          // channels that a tap's loop overhead takes as long as
    double lane_share = 0.12;         // of the peak, where each lane has a group of its own
    double output_vector_cycles = 6;  // cycles a vector of outputs
    double run_seconds = 5e-6;        // seconds a run, besides
  } general;
};

}  // namespace convoy

namespace convoy::cpu {

/// Those of a machine that with_threads made, else of the class that its cores belong to.
const CoreCosts& core_costs(const Machine& machine);

/// What a run takes beside its work, of one parallel loop if there are several threads.
inline double start_seconds(const Machine& machine) {
  const CoreCosts& costs = core_costs(machine);
  if (machine.threads == 1) return costs.run_seconds;
  return costs.loop_seconds + costs.loop_thread_seconds * machine.threads;
}

}  // namespace convoy::cpu
