// The constants of core_costs.hpp by name.
#pragma once

#include <array>
#include <string_view>

#include "cpu/shared/core_costs.hpp"

namespace convoy::bench {

struct CoreConstant {
  const char* name;
  double& (*value)(CoreCosts&);
  double in(CoreCosts costs) const { return value(costs); }
};

#define CONVOY_CONSTANT(path)                                      \
  CoreConstant {                                                   \
#path, [](CoreCosts & costs) -> double& { return costs.path; } \
  }
/// All but the clock, which scales all times alike.
constexpr std::array core_constants{
    CONVOY_CONSTANT(thread_bandwidth),
    CONVOY_CONSTANT(memory_bandwidth),
    CONVOY_CONSTANT(run_seconds),
    CONVOY_CONSTANT(loop_seconds),
    CONVOY_CONSTANT(loop_thread_seconds),
    CONVOY_CONSTANT(pool_vector_cycles),
    CONVOY_CONSTANT(direct.multiply_share),
    CONVOY_CONSTANT(direct.tile_steps),
    CONVOY_CONSTANT(direct.loads_a_cycle),
    CONVOY_CONSTANT(direct.row_loads_a_cycle),
    CONVOY_CONSTANT(direct.load_cycles),
    CONVOY_CONSTANT(direct.row_load_cycles),
    CONVOY_CONSTANT(direct.weight_bytes_a_cycle),
    CONVOY_CONSTANT(direct.fetched_bytes_a_cycle),
    CONVOY_CONSTANT(direct.pack_vector_cycles),
    CONVOY_CONSTANT(tap_pairs.multiply_share),
    CONVOY_CONSTANT(tap_pairs.sum_steps),
    CONVOY_CONSTANT(tap_pairs.loads_a_cycle),
    CONVOY_CONSTANT(tap_pairs.load_cycles),
    CONVOY_CONSTANT(tap_pairs.deep_weight_cycles),
    CONVOY_CONSTANT(tap_pairs.output_vector_cycles),
    CONVOY_CONSTANT(tap_pairs.pack_vector_cycles),
    CONVOY_CONSTANT(tap_pairs.near_bytes_a_cycle),
    CONVOY_CONSTANT(tap_pairs.far_bytes_a_cycle),
    CONVOY_CONSTANT(winograd.multiply_share),
    CONVOY_CONSTANT(winograd.transform_share),
    CONVOY_CONSTANT(winograd.input_flops),
    CONVOY_CONSTANT(winograd.input_stride2_flops),
    CONVOY_CONSTANT(winograd.output_flops),
    CONVOY_CONSTANT(winograd.filter_flops),
    CONVOY_CONSTANT(winograd.loop_seconds),
    CONVOY_CONSTANT(winograd.hiding_sums),
    CONVOY_CONSTANT(winograd.half_panel_sums),
    CONVOY_CONSTANT(winograd.stream_speed),
    CONVOY_CONSTANT(winograd.u_near_l2s),
    CONVOY_CONSTANT(winograd.u_near_speed),
    CONVOY_CONSTANT(winograd.u_l3_speed),
    CONVOY_CONSTANT(winograd.u_memory_speed),
    CONVOY_CONSTANT(winograd.v_near_speed),
    CONVOY_CONSTANT(winograd.v_far_speed),
    CONVOY_CONSTANT(winograd.v_shared_speed),
    CONVOY_CONSTANT(winograd.others_speed),
    CONVOY_CONSTANT(first.multiply_share),
    CONVOY_CONSTANT(first.vector_steps),
    CONVOY_CONSTANT(first.pack_float_cycles),
    CONVOY_CONSTANT(first_winograd2.product_steps),
    CONVOY_CONSTANT(first_winograd2.single_steps),
    CONVOY_CONSTANT(first_winograd2.pooled_output_steps),
    CONVOY_CONSTANT(first_winograd2.output_steps),
    CONVOY_CONSTANT(first_winograd2.transform_channel_steps),
    CONVOY_CONSTANT(first_winograd2.transform_steps),
    CONVOY_CONSTANT(few_filters.loads_a_cycle),
    CONVOY_CONSTANT(few_filters.single_pixel),
    CONVOY_CONSTANT(few_filters.tap_cycles),
    CONVOY_CONSTANT(few_filters.sum_cycles),
    CONVOY_CONSTANT(few_filters.tile_cycles),
    CONVOY_CONSTANT(few_filters.pool_cycles),
    CONVOY_CONSTANT(spike_chain.multiply_speed),
    CONVOY_CONSTANT(depthwise.tap_steps),
    CONVOY_CONSTANT(depthwise.vector_steps),
    CONVOY_CONSTANT(grouped.product_steps),
    CONVOY_CONSTANT(grouped.product_of_two_steps),
    CONVOY_CONSTANT(grouped.tap_steps),
    CONVOY_CONSTANT(grouped.vector_steps),
    CONVOY_CONSTANT(general.multiply_share),
    CONVOY_CONSTANT(general.tap_channels),
    CONVOY_CONSTANT(general.lane_share),
    CONVOY_CONSTANT(general.output_vector_cycles),
    CONVOY_CONSTANT(general.run_seconds),
};
#undef CONVOY_CONSTANT

// A new constant of CoreCosts belongs into the list.
static_assert(sizeof(CoreCosts) ==
              2 * sizeof(std::string_view) + (core_constants.size() + 1) * sizeof(double));

}  // namespace convoy::bench
