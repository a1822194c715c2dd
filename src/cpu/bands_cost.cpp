// When register tiles fit a stage, and what they cost.
#include <fmt/format.h>

#include <algorithm>

#include "cpu/bands.hpp"

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
  return reasons;
}

Cost cost_of_bands(const Stage& stage, int vectors, const Machine& machine) {
  const TileLoops& loops = tile_loops();
  const Shapes shapes = shapes_of(stage);
  const Index depth = stage.r * stage.s * (stage.c / stage.groups);
  const double pixels = static_cast<double>(shapes.gemm_m);
  double time = 0;  // seconds of one thread, by the vectors of filters of each block
  double flops = 0;
  const double peak = machine.peak_flops / machine.threads;
  for (const Bands::Block& block : filter_blocks(stage, vectors, loops)) {
    const auto at = static_cast<std::size_t>(block.vectors);
    // A step of a tile is pixels × vectors multiply-adds against pixels + vectors loads: at two
    // loads a cycle, tiles of one vector are bound by their loads.
    const double tile_pixels = loops.max_pixels[at];
    const double v = std::max(0.5, static_cast<double>(block.vectors));
    const double multiply_adds = 2.0 * static_cast<double>(loops.lanes) * v;
    const double share =
        std::min(0.94, 0.94 * std::min(1.0, v * tile_pixels * 1.9 / (v + tile_pixels) /
                                                (loops.lanes >= 16 ? 1.0 : 2.0)));
    flops += pixels * static_cast<double>(depth * block.width) * 2;
    time += pixels * (static_cast<double>(depth) + 2.5) * multiply_adds / (peak * share);
  }
  const double rounds = stage.pool ? 1.0 : 0.0;
  time += rounds * pixels * static_cast<double>(stage.k) * 2 / peak;
  // Packing: about a float a quarter cycle and thread.
  const double x_floats = static_cast<double>(shapes.x_elements);
  const double lanes = static_cast<double>(loops.lanes);
  time += x_floats * 4 * (4.0 / (peak / lanes));
  Cost cost;
  cost.flops = flops;
  cost.waste = flops > 0 ? 1 - 2.0 * static_cast<double>(shapes.macs) / flops : 0;
  cost.bytes = x_floats * static_cast<double>(size_of(stage.dtype)) +
               4.0 * static_cast<double>(shapes.w_elements + shapes.y_elements);
  cost.seconds = std::max(time / machine.threads, cost.bytes / machine.memory_bandwidth) +
                 (machine.threads > 1 ? 3e-6 : 5e-7);
  return cost;
}

}  // namespace convoy::cpu
