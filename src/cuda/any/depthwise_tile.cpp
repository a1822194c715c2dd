#include "cuda/any/depthwise_tile.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/costs.hpp"
#include "cuda/refusals.hpp"
#include "cuda/stage_facts.hpp"
#include "math/divide.hpp"

namespace convoy::cuda {

using math::ceil_div;

int depthwise_channels(const Stage& stage) {
  const int vector = depthwise_bytes / static_cast<int>(size_of(stage.dtype));
  return stage.c % vector == 0 ? vector : 1;
}

bool is_compiled_in(const Stage& stage) {
  if (stage.r != stage.s || stage.stride.h != stage.stride.w || stage.dil != Extent(1))
    return false;
  return stage.r == 7 ? stage.stride.h == 1 : (stage.r == 3 || stage.r == 5) && stage.stride.h <= 2;
}

void refuse_depthwise(const Stage& stage, Reasons& why) {
  if (stage.groups != stage.c || stage.groups != stage.k)
    why.push_back(
        fmt::format("groups = {}, C = {}, K = {}: expected as many groups and filters as channels",
                    stage.groups, stage.c, stage.k));
  Refusals(stage, why).within(depthwise_limits);
  if (!why.empty()) return;
  for (const DepthwiseTile& tile : depthwise_tiles(stage)) {
    const DepthwiseLayout layout = depthwise_layout(stage, tile);
    if (countable({layout.channel_blocks, layout.column_blocks, layout.row_blocks}, stage.n))
      continue;
    why.emplace_back("more CTAs than the kernel's 32-bit numbers count");
    break;
  }
}

Reasons depthwise_refusals(const Stage& stage) {
  Reasons why = unserved(stage, served_by_depthwise, DeviceKind::cuda);
  refuse_depthwise(stage, why);
  return why;
}

std::string depthwise_tile_name(const DepthwiseTile& tile) {
  return fmt::format("{}x{}", tile.rows, tile.columns);
}

std::vector<DepthwiseTile> depthwise_tiles(const Stage& stage) {
  // A pool's windows lie inside the tiles.
  if (stage.pool || !is_compiled_in(stage) || stage.r == 7 || depthwise_channels(stage) == 1)
    return {{2, 2}};
  if (stage.r == 5) return {{1, 2}, {2, 2}};
  if (stage.stride.h == 2)
    return {{1, 1}, {1, 2}, {2, 4}};  // 2x2 was behind one of these everywhere
  return {{1, 1}, {1, 2}, {2, 2}, {2, 4}};
}

DepthwiseLayout depthwise_layout(const Stage& stage, const DepthwiseTile& tile) {
  const Index channels = depthwise_channels(stage);
  const Index most_lanes = channels == 1 ? 32 : 16;  // 128 bytes of a pixel, or a warp
  const Shapes shapes = shapes_of(stage);
  const Index vectors = ceil_div(stage.c, channels);
  const Index channel_blocks = ceil_div(vectors, most_lanes),
              lanes = ceil_div(vectors, channel_blocks);
  const Index pool = stage.pool ? 2 : 1;
  const Index rows = std::min(shapes.p, pool * shapes.out_h),
              columns = std::min(shapes.q, pool * shapes.out_w);
  const Index tiles_x = ceil_div(columns, tile.columns), tiles_y = ceil_div(rows, tile.rows);
  // A block of tiles that loads little beyond its own pixels, and leaves few threads idle.
  const Index tiles = std::max<Index>(1, depthwise_threads / lanes);
  const auto span = [](Index outputs, Index stride, Index taps, Index dil) {
    return (outputs - 1) * stride + (taps - 1) * dil + 1;
  };
  double least = std::numeric_limits<double>::infinity();
  DepthwiseLayout best;
  for (Index x = 1; x <= std::min(tiles, tiles_x); ++x) {
    const Index column_blocks = ceil_div(tiles_x, x), across = ceil_div(tiles_x, column_blocks);
    const Index row_blocks = ceil_div(tiles_y, std::min(tiles / x, tiles_y)),
                down = ceil_div(tiles_y, row_blocks);
    const double loaded =
        static_cast<double>(column_blocks * row_blocks) *
        static_cast<double>(span(across * tile.columns, stage.stride.w, stage.s, stage.dil.w)) *
        static_cast<double>(span(down * tile.rows, stage.stride.h, stage.r, stage.dil.h));
    if (loaded >= least) continue;
    least = loaded;
    best.across = static_cast<int>(across), best.down = static_cast<int>(down);
    best.column_blocks = static_cast<int>(column_blocks);
    best.row_blocks = static_cast<int>(row_blocks);
  }
  best.rows = static_cast<int>(rows), best.columns = static_cast<int>(columns);
  best.lanes = static_cast<int>(lanes);
  best.channel_blocks = static_cast<int>(channel_blocks);
  return best;
}

double depthwise_seconds(const Stage& stage, const DepthwiseTile& tile, const Machine& machine) {
  const auto real = [](Index v) { return static_cast<double>(v); };
  const DepthwiseCosts costs;
  const DepthwiseLayout at = depthwise_layout(stage, tile);
  const Index height = (tile.rows - 1) * stage.stride.h + stage.r,
              width = (tile.columns - 1) * stage.stride.w + stage.s;
  const double channels = depthwise_channels(stage), taps = real(stage.r * stage.s),
               outputs = real(tile.rows) * tile.columns;
  // Of a thread. A loop over taps loads a pixel for each, and computes where it lies.
  double instructions = costs.thread + real(height * width) * (costs.pixel + channels) +
                        taps * (1 + channels) + outputs * channels * (taps + costs.output);
  if (!is_compiled_in(stage)) instructions *= costs.any_filter;
  const double warps = real(stage.n) * at.channel_blocks * at.column_blocks * at.row_blocks *
                       real(ceil_div(at.lanes * at.across * at.down, 32));
  // A multiprocessor starts four warps' instructions a cycle, of 32 multiply-adds each.
  const double cycle = 256.0 * machine.multiprocessors / machine.peak_flops;
  const double issue = warps * instructions / (costs.issue_share * machine.peak_flops / 64);
  const double memory =
      cost_of(stage, 0, 0).bytes / (costs.memory_share * machine.memory_bandwidth);
  return costs.launch + costs.latency * cycle * instructions + std::hypot(issue, memory);
}

}  // namespace convoy::cuda
