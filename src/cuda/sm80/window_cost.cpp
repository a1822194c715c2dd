// How long a tile of the window family should take.
#include <algorithm>
#include <cmath>

#include "cuda/costs.hpp"
#include "cuda/sm80/window_tile.hpp"
#include "cuda/stage_facts.hpp"

namespace convoy::cuda::sm80 {

namespace {

// Of boxes: what a scheduler issues for its warps; what one waits for, others fill.
double box_seconds(const Stage& stage, const WindowTile& tile, const Machine& machine) {
  const WindowCosts costs;
  WindowSizes at = window_sizes(stage, tile);
  set_machine(at, stage, tile, machine);
  const WindowBox& box = at.box;
  const int parts = box_parts(at.groups, stage.dtype);
  const double turns = std::ceil(1.0 * box.pixels() / box_rows * 64 / tile.threads());
  const double rows = std::ceil(32.0 * box.images * box.in_rows / tile.threads()),
               columns = std::ceil(1.0 * box.in_columns / box_columns);
  const double warp_cycles = rows * (costs.box_row + costs.box_copy * columns) +
                             turns * (costs.box_write + costs.box_part * parts);
  const double each = std::ceil(1.0 * box.count / at.m_tiles);
  const double ctas = std::ceil(1.0 * at.m_tiles * at.n_tiles / machine.multiprocessors);
  // Warps of a multiprocessor's four schedulers.
  const double cycles = ctas * each * warp_cycles * tile.threads() / 128;
  const double moved = cost_of(stage, 0, 0).bytes / (costs.box_memory * machine.memory_bandwidth);
  return costs.launch + std::max(cycles / (costs.clock * machine.clock_hz), moved);
}

}  // namespace

double window_waste(const Stage& stage, const WindowTile& tile) {
  const WindowSizes at = window_sizes(stage, tile);
  const double of_chunk = chunk_bytes / static_cast<double>(size_of(stage.dtype));
  const double rows = tile.box ? 1.0 * at.box.count * at.box.pixels() : 1.0 * at.m_tiles * tile.m;
  const double done = rows * at.n_tiles * tile.n * at.steps * of_chunk;
  return std::max(0.0, 1 - static_cast<double>(shapes_of(stage).macs) / done);
}

double window_seconds(const Stage& stage, const WindowTile& tile, const Machine& machine) {
  if (tile.box) return box_seconds(stage, tile, machine);
  const WindowCosts costs;
  const WindowSizes at = window_sizes(stage, tile);
  const bool f32 = stage.dtype == DType::f32, hopper = machine.compute_capability >= 90;
  const auto bytes = static_cast<double>(size_of(stage.dtype));
  // Multiply-adds a cycle of a multiprocessor; tf32 at half the rate, three products for one.
  const double share = !hopper ? costs.share : f32 ? costs.hopper_f32_share : costs.hopper_share;
  const double rate = share * machine.tensor_flops / 2 /
                      (machine.multiprocessors * machine.clock_hz) / (f32 ? 6 : 1);
  const double math = tile.m * tile.n * chunk_bytes / bytes / rate;
  double step =
      tile.pairs ? costs.pairs * math + costs.pairs_step
                 : math + costs.shown * (tile.m + tile.n) * chunk_bytes / costs.copied + costs.step;
  if (tile.narrow) {
    // Of a dense x: pixels, and groups in them, lie so many bytes apart.
    const Index apart =
        (at.groups.count == 1 ? stage.c : at.groups.channels | stage.c) * static_cast<Index>(bytes);
    step += (apart % 8 == 0 ? costs.narrow_8 : costs.narrow) +
            (tile.threads() > 128 ? costs.narrow_shared : 0);
  } else if (widens(stage)) {
    step *= costs.apart;
  } else if (tile.visit != Visit::optimized) {
    step *= tile.visit == Visit::analytic ? costs.analytic : costs.precomputed;
  }
  // The CTAs of a multiprocessor run side by side; one alone waits.
  const double products = tile.warp_m / 16.0 * tile.warp_n / 8 * chunk_bytes / product_bytes;
  double alone = f32 ? costs.alone_f32 + costs.alone_f32_product * products
                     : costs.alone + costs.alone_product * products;
  if (tile.narrow) alone += costs.narrow_alone * 128 / tile.threads();
  if (tile.pairs) alone = 0;  // their order is made for it
  const auto y_bytes = static_cast<int>(size_of(stage.output_dtype(true)));
  const bool whole = at.k * y_bytes % unit_bytes == 0 &&
                     (at.groups.count == 1 || at.groups.filters * y_bytes % unit_bytes == 0);
  const bool sparse_16 = tile.sparse && !f32;
  const double output = costs.output + (whole ? 0 : costs.staged),
               cta = (sparse_16     ? costs.sparse_16_cta
                      : tile.sparse ? costs.sparse_cta
                      : tile.narrow ? costs.narrow_cta
                      : tile.pairs  ? costs.pairs_cta
                                    : costs.cta) +
                     output * tile.m * tile.n;
  const Index of_one = (Index{at.m_tiles} * at.n_tiles - 1) / machine.multiprocessors + 1;
  const auto together = [&](Index ctas) {
    const auto n = static_cast<double>(ctas);
    return n == 0 ? 0 : at.steps * std::max(n * step, alone) + n * cta;
  };
  const int held = sparse_16 ? costs.sparse_16_ctas : tile.ctas;
  const double cycles =
      static_cast<double>(of_one / held) * together(held) + together(of_one % held);
  const double multiplied = cycles / (costs.clock * machine.clock_hz);
  const double moved = cost_of(stage, 0, 0).bytes / (costs.memory * machine.memory_bandwidth);
  if (sparse_16) return costs.launch + std::max(multiplied + costs.sparse_16_memory * moved, moved);
  return costs.launch + std::max(multiplied, moved);
}

}  // namespace convoy::cuda::sm80
