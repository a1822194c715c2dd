// When register tiles fit a stage, and what they cost.
#include <fmt/format.h>

#include <algorithm>

#include "cpu/bands.hpp"
#include "cpu/third_level.hpp"

namespace convoy::cpu {

std::vector<std::string> refusals_of_bands(const Stage& stage, const Machine&) {
  std::vector<std::string> reasons;
  if (stage.dtype != DType::f32 && stage.dtype != DType::u8)
    reasons.push_back(fmt::format("input {}: it reads f32 and u8", name(stage.dtype)));
  if (stage.output_dtype() != DType::f32)
    reasons.push_back(fmt::format("output {}: it writes f32", name(stage.output_dtype())));
  if (stage.layout != Layout::nhwc) reasons.push_back("layout nchw: it writes nhwc");
  if (stage.act.is_neuron()) reasons.push_back("a neuron: it applies element-wise activations");
  if (stage.keep.any()) reasons.push_back("keep: it writes the pooled output only");
  refuse_packing(stage, math::rows_of_window(stage), reasons);
  return reasons;
}

Cost cost_of_bands(const Stage& stage, int vectors, const Machine& machine) {
  const TileLoops& loops = tile_loops();
  const Shapes shapes = shapes_of(stage);
  const Index depth = stage.r * stage.s * (stage.c / stage.groups);
  const double pixels = static_cast<double>(shapes.gemm_m);
  const double peak = machine.peak_flops / machine.threads;
  const double lanes = static_cast<double>(loops.lanes);
  constexpr double cycle = 1 / 3.0e9;  // the clock of Machine's estimates
  double seconds = 0, flops = 0;       // of all threads together
  const std::vector<Bands::Block> blocks = filter_blocks(stage, vectors, loops);
  const bool fours = pools_in_registers(stage, blocks.front().vectors);
  const bool rows = !fours && stage.r * stage.s > 1 && shapes.q >= min_row_pixels;
  // Loads of a cycle, and what each costs besides: more beside two whole 512-bit multiply-adds a
  // cycle, so that of two tiles alike the one with fewer wins; less in rows, whose places are not
  // loaded.
  const bool wide = lanes >= 16 && !loops.halves;
  const double loads_a_cycle = wide && rows ? 2.0 : 1.7;
  const double load_cost = !wide ? 0.03 : rows ? 0.08 : 0.25;
  for (const Bands::Block& block : blocks) {
    const auto at = static_cast<std::size_t>(block.vectors);
    const double tile_pixels = fours  ? 4 * loops.max_windows[at]
                               : rows ? loops.row_pixels[at]
                                      : loops.max_pixels[at];
    const double width = static_cast<double>(block.width);
    // A step of a tile takes as long as its multiply-adds, two a cycle, or its loads where they
    // take longer. (Registers of half a vector: see register_tile.cpp.)
    const bool halves = block.vectors == 0 || (block.vectors == 1 && loops.halves);
    const double registers = halves ? width / (lanes / 2) : width / lanes;
    double step = std::max({2 * tile_pixels * width / peak, tile_pixels * registers / 2 * cycle,
                            (tile_pixels + registers) / loads_a_cycle * cycle});
    // Weights that take much of the second-level cache come from further away: sooner from a third
    // level near the cores than from a server's with a mesh. Wide tiles fetch those that do not
    // fit.
    const double l2 = static_cast<double>(machine.l2_bytes);
    const bool fetched = block.vectors >= 3 && 4.0 * static_cast<double>(shapes.w_elements) > l2;
    const double bytes_a_cycle = !fetched ? 10 : far_third_level(machine) ? 20 : 24;
    if (static_cast<double>(depth) * width * 16 > l2)
      step = std::max(step, width * 4 / bytes_a_cycle * cycle);
    const double loads = load_cost * (tile_pixels + registers) * cycle;
    // Beside the steps: lists, bias, activation, stores, or five steps' worth.
    seconds += pixels / tile_pixels * (static_cast<double>(depth) / 0.98 + 5) * (step + loads);
    flops += pixels * static_cast<double>(depth) * width * 2;
  }
  // A pool that registers do not hold reads each sum again, a few operations a vector.
  if (stage.pool && !fours) {
    const double reads = static_cast<double>(stage.pool->window.h * stage.pool->window.w) *
                         static_cast<double>(shapes.out_h * shapes.out_w * stage.n * stage.k) /
                         lanes;
    seconds += reads * 2.5 * cycle;
  }
  const double x_floats = static_cast<double>(shapes.x_elements);
  const bool reads_x = rows && stage.dtype == DType::f32 && !stage.norm;
  if (stage.r * stage.s > 1 && !reads_x) seconds += x_floats * 4 / lanes * cycle;  // packing
  Cost cost;
  cost.flops = flops;
  cost.waste = flops > 0 ? 1 - 2.0 * static_cast<double>(shapes.macs) / flops : 0;
  cost.bytes = x_floats * static_cast<double>(size_of(stage.dtype)) +
               4.0 * static_cast<double>(shapes.w_elements + shapes.y_elements);
  cost.seconds = std::max(seconds / machine.threads, cost.bytes / machine.memory_bandwidth) +
                 (machine.threads > 1 ? 3e-6 : 5e-7);
  return cost;
}

}  // namespace convoy::cpu
