// What a run of `direct` costs.
#include <algorithm>

#include "cpu/direct/direct_prepared.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"

namespace convoy::cpu {

Cost direct_cost(const Stage& stage, int vectors, const Machine& machine) {
  const TileSizes sizes = tile_sizes(machine);
  const CoreCosts& all_costs = core_costs(machine);
  const CoreCosts::Direct& costs = all_costs.direct;
  const Shapes shapes = shapes_of(stage);
  const Index depth = stage.r * stage.s * (stage.c / stage.groups);
  const double pixels = static_cast<double>(shapes.gemm_m);
  const double peak = machine.peak_flops / machine.threads;
  const double lanes = static_cast<double>(sizes.lanes);
  const double cycle = 1 / all_costs.clock;
  double seconds = 0, flops = 0;  // of all threads together
  const std::vector<FilterBlock> blocks = filter_blocks(stage, vectors, sizes);
  const bool fours = pools_in_registers(stage, blocks.front().vectors, sizes);
  const bool rows = !fours && stage.r * stage.s > 1 && shapes.q >= min_row_pixels;
  const double loads_a_cycle = rows ? costs.row_loads_a_cycle : costs.loads_a_cycle;
  const double load_cycles = rows ? costs.row_load_cycles : costs.load_cycles;
  for (const FilterBlock& block : blocks) {
    const auto at = static_cast<std::size_t>(block.vectors);
    const double tile_pixels = fours  ? 4 * sizes.max_windows[at]
                               : rows ? sizes.row_pixels[at]
                                      : sizes.max_pixels[at];
    const double width = static_cast<double>(block.width);
    // A step of a tile takes as long as its multiply-adds, two a cycle, or its loads where they
    // take longer. (Registers of half a vector: see register_tile.cpp.)
    const bool halves = block.vectors == 0 || (block.vectors == 1 && sizes.halves);
    const double registers = halves ? width / (lanes / 2) : width / lanes;
    double step = std::max({2 * tile_pixels * width / peak, tile_pixels * registers / 2 * cycle,
                            (tile_pixels + registers) / loads_a_cycle * cycle});
    // Weights that take much of L2 come from L3. Wide tiles fetch those that do not fit.
    const double l2 = static_cast<double>(machine.l2_bytes);
    const bool fetched = block.vectors >= 3 && 4.0 * static_cast<double>(shapes.w_elements) > l2;
    const double bytes_a_cycle = fetched ? costs.fetched_bytes_a_cycle : costs.weight_bytes_a_cycle;
    if (static_cast<double>(depth) * width * 16 > l2)
      step = std::max(step, width * 4 / bytes_a_cycle * cycle);
    const double loads = load_cycles * (tile_pixels + registers) * cycle;
    const double steps = static_cast<double>(depth) / costs.multiply_share + costs.tile_steps;
    seconds += pixels / tile_pixels * steps * (step + loads);
    flops += pixels * static_cast<double>(depth) * width * 2;
  }
  // A pool that registers do not hold reads each sum again, a few operations a vector.
  if (stage.pool && !fours) {
    const double reads = static_cast<double>(stage.pool->window.h * stage.pool->window.w) *
                         static_cast<double>(shapes.out_h * shapes.out_w * stage.n * stage.k) /
                         lanes;
    seconds += reads * all_costs.pool_vector_cycles * cycle;
  }
  const double x_floats = static_cast<double>(shapes.x_elements);
  const bool reads_x = rows && stage.dtype == DType::f32 && !stage.norm;
  if (stage.r * stage.s > 1 && !reads_x)
    seconds += x_floats / lanes * costs.pack_vector_cycles * cycle;
  Cost cost;
  cost.flops = flops;
  cost.waste = flops > 0 ? 1 - 2.0 * static_cast<double>(shapes.macs) / flops : 0;
  cost.bytes = bytes_of_stage(stage, shapes);
  cost.seconds = std::max(seconds / machine.threads, cost.bytes / machine.memory_bandwidth) +
                 start_seconds(machine);
  return cost;
}

}  // namespace convoy::cpu
