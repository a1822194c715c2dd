#include "cuda/any/fma_tile.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/size.hpp"
#include "cuda/costs.hpp"
#include "cuda/refusals.hpp"
#include "cuda/stage_facts.hpp"
#include "math/divide.hpp"

namespace convoy::cuda {

using math::ceil_div;

void refuse_fma(const Stage& stage, Reasons& why) {
  Refusals(stage, why).within(fma_limits);
}

Reasons fma_refusals(const Stage& stage) {
  Reasons why = unserved(stage, served_by_fma, DeviceKind::cuda);
  refuse_fma(stage, why);
  return why;
}

std::string fma_tile_name(const FmaTile& tile) {
  return fmt::format("{}x{}", tile.m, tile.n);
}

std::vector<FmaTile> fma_tiles(const Stage& stage) {
  const Index filters = stage.k / stage.groups;
  if (filters <= 16) return {fma_narrow};
  if (filters <= 32) return {fma_medium, fma_narrow};
  return {fma_large, fma_medium, fma_small};
}

FmaSizes fma_sizes(const Stage& stage, const FmaTile& tile) {
  const auto i = [](Index v) { return static_cast<int>(v); };
  const Shapes shapes = shapes_of(stage);
  FmaSizes at;
  at.rows.window = stage.pool ? 2 : 1;
  at.rows.down = i(stage.pool ? shapes.out_h : shapes.p);
  at.rows.across = i(stage.pool ? shapes.out_w : shapes.q);
  at.rows.m = i(stage.n) * at.rows.down * at.rows.across * at.rows.window * at.rows.window;
  at.group_c = i(stage.c / stage.groups), at.group_k = i(stage.k / stage.groups);
  at.taps = FmaTaps(i(stage.s), at.group_c);
  at.r = i(stage.r);
  at.steps = i(ceil_div(stage.r * stage.s * at.group_c, Index{fma_depth}));
  at.padded_k = i(ceil_div(at.group_k, 4)) * 4;
  at.m_tiles = ceil_div(at.rows.m, tile.m);
  at.n_tiles = ceil_div(at.group_k, tile.n) * i(stage.groups);
  return at;
}

std::vector<float> fma_weights(const Stage& stage, const float* w) {
  const FmaSizes at = fma_sizes(stage, fma_large);
  const Index products = stage.r * stage.s * at.group_c, depth = Index{at.steps} * fma_depth;
  std::vector<float> packed(static_cast<std::size_t>(stage.groups * depth * at.padded_k));
  for (Index k = 0; k < stage.k; ++k) {
    const Index group = k / at.group_k, filter = k % at.group_k;
    for (Index product = 0; product < products; ++product)
      packed[static_cast<std::size_t>((group * depth + product) * at.padded_k + filter)] =
          w[k * products + product];
  }
  return packed;
}

double fma_waste(const Stage& stage, const FmaTile& tile) {
  const FmaSizes at = fma_sizes(stage, tile);
  const double done = 1.0 * at.m_tiles * tile.m * at.n_tiles * tile.n * at.steps * fma_depth;
  return std::max(0.0, 1 - static_cast<double>(shapes_of(stage).macs) / done);
}

double fma_seconds(const Stage& stage, const FmaTile& tile, const Machine& machine) {
  const FmaCosts costs;
  const FmaSizes at = fma_sizes(stage, tile);
  // Instructions of a thread in a step: multiply-adds, loads from shared memory, x.
  const double outputs = tile.thread_m * tile.thread_n;
  const double copied = 1.0 * tile.m * fma_depth / fma_threads;
  const double copy = (stage.dtype == DType::f32 && !stage.norm ? costs.copy : costs.copy_typed) *
                      (stage.layout == Layout::nhwc ? 1 : costs.nchw);
  const double step =
      fma_depth * (outputs + (tile.thread_m + tile.thread_n) / 4.0) + copied * copy + costs.step;
  const bool in_fours = stage.layout == Layout::nhwc && at.group_k % 4 == 0;
  const double cta = at.steps * step / costs.issue_share + costs.cta + costs.output * outputs +
                     (in_fours ? 0 : costs.scattered * tile.m * std::min(tile.n, at.group_k));
  // A CTA's four warps are one a scheduler; one alone also waits.
  const double of_one = std::ceil(1.0 * at.m_tiles * at.n_tiles / machine.multiprocessors);
  const double cycles = of_one * cta + (of_one < 2 ? at.steps * costs.wait : 0);
  const double moved = cost_of(stage, 0, 0).bytes / (costs.memory_share * machine.memory_bandwidth);
  return costs.launch + std::max(cycles / (costs.clock * machine.clock_hz), moved);
}

}  // namespace convoy::cuda
