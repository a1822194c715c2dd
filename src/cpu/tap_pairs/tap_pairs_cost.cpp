// The sizes of the kernel `tap_pairs` that its run and its prediction share, and the prediction.
#include <algorithm>
#include <cmath>

#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/filter_blocks.hpp"
#include "cpu/tap_pairs/tap_pairs.hpp"
#include "math/divide.hpp"

namespace convoy::cpu::tap_pairs_loops {
using math::ceil_div;

Factors factors_of(Index taps, Index stride) {
  Factors factors;
  for (Index begin = 0; begin < std::min(stride, taps); ++begin)
    for (Index tap = begin; tap < taps; tap += 2 * stride) {
      const Index next = tap + stride;
      if (next < taps) {
        factors[0].push_back({tap, true, 1, tap});
        factors[1].push_back({next, false, 1, tap, next});
        factors[2].push_back({next, true, -1, next});
      } else {
        factors[0].push_back({tap, false, 1, tap});
        factors[2].push_back({next, false, 1, tap});
      }
    }
  return factors;
}

Index products_of(const Factors& f, Index tiles, Index whole) {
  return tiles * static_cast<Index>(f[0].size() + f[1].size()) +
         whole * static_cast<Index>(f[2].size());
}

PaddedRows rows_of(const Stage& stage, const Shapes& shapes) {
  PaddedRows rows;
  rows.stage = stage;
  rows.pixel_pitch = stage.c;
  // Pixels a large power of two apart share a few cache sets: a tile's would evict each other.
  if (2 * stage.stride.w * stage.c % 1024 == 0) rows.pixel_pitch += 16;
  rows.columns = (2 * ceil_div(shapes.q, 2) - 1) * stage.stride.w + stage.s;
  // Differences are made in whole vectors.
  rows.row_pitch = ceil_div((rows.columns + stage.stride.w) * rows.pixel_pitch, 16) * 16;
  return rows;
}
Index packed_rows(const Stage& stage, Index tile_rows) {
  return (2 * tile_rows - 1) * stage.stride.h + stage.r;
}
Index plane_floats(const PaddedRows& rows, Index tile_rows) {
  return packed_rows(rows.stage, tile_rows) * rows.row_pitch + 64;
}
Index step_of(const PaddedRows& rows, const Shapes& shapes, const Machine& machine, Index width) {
  const Index cache = static_cast<Index>(machine.l2_bytes / sizeof(float)) / 2;
  const auto floats = [&](Index tile_rows) {
    return 4 * plane_floats(rows, tile_rows) + sums * tile_rows * ceil_div(shapes.q, 2) * width;
  };
  Index step = 1;
  while (step < std::min<Index>(ceil_div(shapes.p, 2), 8) && floats(step + 1) <= cache) ++step;
  return step;
}

Cost cost_of(const Stage& stage, int vectors, const Machine& machine) {
  const TileSizes sizes = tile_sizes(machine);
  const CoreCosts& all_costs = core_costs(machine);
  const CoreCosts::TapPairs& costs = all_costs.tap_pairs;
  const Shapes shapes = shapes_of(stage);
  const double peak = machine.peak_flops / machine.threads;
  const double lanes = static_cast<double>(sizes.lanes);
  const double cycle = 1 / all_costs.clock;
  const Factors row_factors = factors_of(stage.r, stage.stride.h);
  const Factors column_factors = factors_of(stage.s, stage.stride.w);
  const Index tile_rows = ceil_div(shapes.p, 2), tile_columns = ceil_div(shapes.q, 2);
  const auto count = [](Index value) { return static_cast<double>(value); };
  // Of one filter, over all images.
  const double products = count(stage.n * stage.c) *
                          count(products_of(row_factors, tile_rows, shapes.p / 2)) *
                          count(products_of(column_factors, tile_columns, shapes.q / 2));
  const double depth =
      count(products_of(row_factors, 1, 1)) * count(products_of(column_factors, 1, 1) * stage.c);
  const double output_tiles = count(stage.n * tile_rows) * count(tile_columns);
  const PaddedRows padded = rows_of(stage, shapes);
  Cost cost;
  double seconds = 0;
  for (const FilterBlock& block : filter_blocks(stage, vectors, sizes)) {
    const Index rows = step_of(padded, shapes, machine, block.width),
                together = rows * tile_columns;
    const Index most = sizes.max_pixels[static_cast<std::size_t>(block.vectors)];
    const double pixels = count(together) / count(ceil_div(together, most));
    const double width = count(block.width);
    // A step's multiply-adds or loads, and what those cost besides, more so of weights that L1 does
    // not hold.
    const double loads = pixels + width / lanes;
    const bool deep = depth / sums * width * 8 > count(static_cast<Index>(machine.l1_bytes));
    const double step =
        std::max(2 * pixels * width / peak, loads / costs.loads_a_cycle * cycle) +
        (costs.load_cycles * loads + (deep ? costs.deep_weight_cycles * width : 0)) * cycle;
    const double multiply =
        (products / costs.multiply_share + output_tiles * costs.sum_steps * sums) / pixels * step;
    // Weights are read once for each step of rows, unless L2 holds them: hidden behind the
    // multiply-adds from an L3 near its cores, faster if it has room for them; a server's mesh
    // delays the multiply-adds.
    const double l2 = count(static_cast<Index>(machine.l2_bytes));
    const double l3 = count(static_cast<Index>(machine.l3_bytes));
    const double all = 4 * depth * count(stage.k);
    const double near = machine.mesh ? 4 * l2 : l3 / 2;
    const double bytes_a_cycle = all > near ? costs.far_bytes_a_cycle : costs.near_bytes_a_cycle;
    const double passes = count(stage.n * ceil_div(tile_rows, rows));
    const double stream = 4 * all > l2 ? passes * 4 * width * depth / bytes_a_cycle * cycle : 0;
    seconds += machine.mesh ? multiply + stream : std::max(multiply, stream);
    seconds += output_tiles * std::ceil(width / lanes) * costs.output_vector_cycles * cycle;
    cost.flops += 2 * products * width;
  }
  cost.waste = 1 - 2 * products * count(stage.k) / cost.flops;
  if (stage.pool)
    seconds += static_cast<double>(stage.pool->window.h * stage.pool->window.w) *
               static_cast<double>(shapes.out_h * shapes.out_w * stage.n * stage.k) / lanes *
               all_costs.pool_vector_cycles * cycle;
  const double x_floats = static_cast<double>(shapes.x_elements);
  seconds += x_floats / lanes * costs.pack_vector_cycles * cycle;
  cost.bytes = bytes_of_stage(stage, shapes);
  // Threads share rows of tiles.
  const Index rows = stage.n * tile_rows;
  const double busiest = count(ceil_div(rows, machine.threads)) / count(rows);
  cost.seconds =
      std::max(seconds * busiest, cost.bytes / machine.memory_bandwidth) + start_seconds(machine);
  return cost;
}

}  // namespace convoy::cpu::tap_pairs_loops
