// What the cost models of the CPU's kernels take from measurements: one table a class of cores.
//
// Cycles are of `clock`; bytes a cycle are those of one thread. What two classes share stands here,
// what one has of its own in core_costs.cpp, beside when and by what it was fitted.
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
  double memory_bandwidth = 48e9;  // bytes/s that all threads together do, at most: a desktop's
  double run_seconds = 5e-7;       // of a run of one thread, beside its work
  // A parallel loop that begins where another has just ended: 0.9e-6 with two threads of a Golden
  // Cove server, 5.6e-6 with sixteen. Where threads sleep it takes four times as long.
  double loop_seconds = 2.5e-6;
  double loop_thread_seconds = 2.5e-7;  // of it, for each thread
  double pool_vector_cycles = 2.5;      // a vector of sums that a pool reads again

  struct Direct {
    double multiply_share = 0.98;       // of the peak, of long sums
    double tile_steps = 5;              // lists, bias, activation and stores of a tile, in steps
    double loads_a_cycle = 1.7;         // beside multiply-adds
    double row_loads_a_cycle = 1.7;     // in rows, whose places are not loaded
    double load_cycles = 0.03;          // that a load takes besides
    double row_load_cycles = 0.03;      // likewise in rows
    double weight_bytes_a_cycle = 10;   // of weights that take much of L2
    double fetched_bytes_a_cycle = 24;  // of those that wide tiles fetch ahead
    double pack_vector_cycles = 4;      // a vector of input, packed
  } direct;

  struct TapPairs {
    double multiply_share = 0.945;     // of the peak, of long sums
    double sum_steps = 5;              // of a tile and a sum, besides
    double loads_a_cycle = 1.7;        // beside multiply-adds
    double load_cycles = 0.1;          // that a load takes besides
    double deep_weight_cycles = 0.04;  // a weight that L1 does not hold, besides
    double output_vector_cycles = 24;  // nine loads, ten additions, bias, activation, four stores
    double pack_vector_cycles = 16;    // a vector of input: packing and differences
    // Of weights that L2 does not hold: those that L3 has room for, and others. A mesh delays the
    // multiply-adds; a near L3 streams behind them.
    double near_bytes_a_cycle = 16, far_bytes_a_cycle = 8;
  } tap_pairs;

  struct Winograd {
    double multiply_share = 0.97;  // of the peak, that the GEMMs reach
    double transform_share = 1;    // likewise of transforms: loads and stores set their pace
    // A number through its transform, in operations at the pace above.
    double input_flops = 16, input_stride2_flops = 12, output_flops = 9, filter_flops = 16;
    double loop_seconds = 5e-6;   // of a parallel loop, besides
    double hiding_sums = 8;       // that hide the latency of a multiply-add
    double half_panel_sums = 20;  // likewise of half a panel, which has more loads
    // As multiples of thread_bandwidth. Input and output:
    double stream_speed = 3;
    // U that L2 does not hold: near is that of so many L2s, or if that is 0 of a quarter of L3.
    double u_near_l2s = 0, u_near_speed = 24, u_l3_speed = 6, u_memory_speed = 3;
    // V that L2 does not hold, which is read once for each panel: of a thread's own, and that
    // others wrote as well.
    double v_near_speed = 12, v_far_speed = 4, v_shared_speed = 5;
    double others_speed = 1;  // a thread's first look through a mesh at what others wrote of it
  } winograd;

  struct First {
    double multiply_share = 0.95;  // of two multiply-adds a cycle
    double vector_steps = 3;       // bias, activation and store of a vector, in multiply-adds
    double pack_float_cycles = 0.25;
  } first;

  struct FirstWinograd2 {
    double product_steps = 1.2;  // a product, in multiply-adds: it waits for loads
    double single_steps = 1.8;   // likewise of tiles of one vector
    double pooled_output_steps = 16, output_steps = 30;       // a tile and vector
    double transform_channel_steps = 5, transform_steps = 6;  // a tile
  } first_winograd2;

  struct FewFilters {
    double loads_a_cycle = 2;
    double single_pixel = 1.4;  // few sums don't hide the latency: a step's factor
    double tap_cycles = 15;     // a tap's pointers
    double sum_cycles = 4;      // a sum's lanes, added
    double tile_cycles = 60;
    double pool_cycles = 2;  // a value of a window
  } few_filters;

  struct SpikeChain {
    // Multiply-adds a second, of the fp32 peak's. A table row of 16 sums is added where direct
    // kernels do 8 times 16 multiply-adds (4 times in a linear layer), at about a quarter of their
    // rate; the first layer multiplies pairs of 16-bit numbers at twice the rate of fp32.
    double multiply_speed = 2;
  } spike_chain;

  struct Depthwise {
    double tap_steps = 1.3, vector_steps = 8;  // in multiply-adds
  } depthwise;

  struct General {
    double multiply_share = 0.8;  // of the peak, of long sums
    double tap_channels = 5;      // a tap's loop overhead, in channels
    double lane_share = 0.12;     // of the peak, where each lane has a group of its own
    double output_vector_cycles = 6;
    double run_seconds = 5e-6;
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
