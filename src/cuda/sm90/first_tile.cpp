// The geometry of first: what fits, tiles and runs of them, how a brick lies in shared memory.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "cuda/refusals.hpp"
#include "cuda/sm90/first_layout.hpp"
#include "cuda/sm90/shared_memory.hpp"
#include "math/divide.hpp"

namespace convoy::cuda::sm90 {
namespace {

/// How many neighbouring tiles make a run, and how many runs a row of them: as many as leave the
/// busiest warpgroup the fewest tiles. Longer runs lose fewer columns, shorter ones share better.
void cut_runs(const Stage& stage, const Shapes& shapes, int sms, FirstLayout& l) {
  const bool overlap = first_pool(stage) == FirstPool::max3;
  // A longer run would save less than a thousandth.
  constexpr Index longest_tried = 1024;
  const int longest = overlap && l.k_blocks == 1
                          ? static_cast<int>(
                                std::min(longest_tried, math::ceil_div(shapes.out_w, l.out_w)))
                          : 1,
            workers = l.k_blocks == 1 ? 2 * sms : sms;
  Index fewest = std::numeric_limits<Index>::max();
  for (int run = 1; run <= longest; ++run) {
    const int pitch = run * l.out_w - (overlap ? 1 : 0);
    const Index along = math::ceil_div(std::max<Index>(shapes.out_w - (overlap ? 1 : 0), 1), pitch),
                tiles = run * math::ceil_div(stage.n * l.runs_y * along, workers);
    if (tiles >= fewest) continue;
    fewest = tiles;
    l.run = run;
    l.run_pitch = pitch;
    l.runs_x = static_cast<int>(along);
  }
}

}  // namespace

FirstPool first_pool(const Stage& stage) {
  if (!stage.pool) return FirstPool::none;
  return stage.pool->window == Extent(2) ? FirstPool::max2 : FirstPool::max3;
}

void refuse_first(const Stage& stage, const DeviceFacts& device, Reasons& why) {
  Refusals refusals(stage, why);
  refusals.hopper(device)
      .no(stage.c > 4, fmt::format("C = {}, the family takes at most 4", stage.c))
      .filters_in_eights()
      .no(stage.stride.h != stage.stride.w || stage.stride.h > 2, "a stride other than 1 or 2")
      .no(stage.s > 15 || stage.r > 15, "a filter above 15x15")
      .within(first_limits);
  if (refusals.none()) {
    const FirstLayout layout = first_layout(stage, device);
    const bool fits = layout.bricks >= 2;
    refusals.no(!fits, "weights and two bricks of the image do not fit in shared memory")
        .no(fits && !countable({layout.runs_x, layout.runs_y}, stage.n * layout.run),
            too_many_tiles);
  }
}

Reasons first_refusals(const Stage& stage, const DeviceFacts& device) {
  Reasons why = unserved(stage, served_by_first, DeviceKind::cuda);
  refuse_first(stage, device, why);
  return why;
}

FirstLayout first_layout(const Stage& stage, const DeviceFacts& device) {
  const FirstPool pool = first_pool(stage);
  const Shapes shapes = shapes_of(stage);
  const int u = static_cast<int>(stage.stride.h);
  FirstLayout l;
  l.conv_rows = pool == FirstPool::max3 ? 15 : 16;
  l.out_w = pool == FirstPool::none ? 16 : 8;
  l.out_h = pool == FirstPool::none ? 16 : pool == FirstPool::max2 ? 8 : 7;
  // The first stored pixel should be an even one, so that pairs start at words: a zero tap in front
  // where padding makes it odd.
  l.lead = static_cast<int>(stage.pad.left) % 2;
  l.row_taps = round_up(static_cast<int>(stage.s) + l.lead, 4);
  l.brick_rows = u * (l.conv_rows - 1) + static_cast<int>(stage.r);
  l.units = u == 1 ? 14 + l.row_taps : 15 + l.row_taps / 2;  // a pair of taps is 2 / u units on
  l.pitch = l.units * 16;
  l.k_stride = 16 * 2 / u;
  l.step_stride = 2 * l.k_stride;
  l.brick_bytes = round_up(l.brick_rows * l.pitch, 128);
  l.k_blocks = static_cast<int>(math::ceil_div(stage.k, block_channels));
  const Index w_bytes = stage.r * (l.row_taps / 4) * 2048 * l.k_blocks;
  if (w_bytes > static_cast<Index>(device.shared_bytes)) return l;
  l.w_bytes = static_cast<int>(w_bytes);
  l.staging = round_up((l.out_w * l.out_h + 1) * 128, 1024);
  l.raw = stage.dtype == stage.output_dtype(true) && !stage.norm && stage.w * stage.c % 8 == 0;
  // A word more than the units hold: see widen_rows; up to 14 bytes before them: see raw_column.
  const int row_halves = (u * (l.units - 1) + 2) * static_cast<int>(stage.c);
  l.raw_pitch = l.raw ? round_up(row_halves * 2 + 4 + 14, 16) : 0;
  l.raw_bytes = round_up(l.brick_rows * l.raw_pitch, 128);
  const int room = static_cast<int>(device.shared_bytes) - 2048 - 2 * l.staging - l.w_bytes -
                   raw_slots * l.raw_bytes;
  l.bricks = room < 0 ? 0 : std::min(4, room / l.brick_bytes);
  if (l.k_blocks == 1) l.bricks -= l.bricks % 2;  // a ring for each consumer
  l.shared_bytes =
      2048 + 2 * l.staging + l.w_bytes + raw_slots * l.raw_bytes + l.bricks * l.brick_bytes;
  l.runs_y = static_cast<int>(math::ceil_div(shapes.out_h, l.out_h));
  cut_runs(stage, shapes, device.sms, l);
  l.grid = static_cast<int>(std::min<Index>(device.sms, stage.n * l.runs_x * l.runs_y));
  return l;
}

std::vector<float> first_weights(const Stage& stage, const FirstLayout& l, const float* w) {
  constexpr Index unit = 8, matrix_rows = block_channels, column = matrix_rows * unit,
                  step = 2 * column;
  const Index steps = l.row_taps / 4;  // of a filter row
  std::vector<float> packed(static_cast<std::size_t>(l.w_bytes) / 2);
  for (Index k = 0; k < stage.k; ++k) {
    for (Index r = 0; r < stage.r; ++r) {
      for (Index s = 0; s < stage.s; ++s) {
        const Index tap = s + l.lead;  // of four channels, two to a unit of 16 bytes
        const Index to = ((k / block_channels * stage.r + r) * steps + tap / 4) * step +
                         tap / 2 % 2 * column + k % block_channels * unit + tap % 2 * 4;
        std::copy_n(w + ((k * stage.r + r) * stage.s + s) * stage.c, stage.c, packed.begin() + to);
      }
    }
  }
  return packed;
}

TensorMapArgs first_x_map(const Stage& stage, const FirstLayout& l) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t row = u(stage.w * stage.c);
  TensorMapArgs map{.dtype = stage.dtype, .rank = 3};
  map.size = {row, u(stage.h), u(stage.n)};
  map.stride = {0, row * value_bytes, row * u(stage.h) * value_bytes};
  map.box = {static_cast<std::uint32_t>(l.raw_pitch / value_bytes),
             static_cast<std::uint32_t>(l.brick_rows), 1};
  map.swizzle = false;
  return map;
}

TensorMapArgs first_y_map(const Stage& stage, const FirstLayout& l, Index pixel_stride,
                          bool without_first) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const Shapes shapes = shapes_of(stage);
  const std::uint64_t pixel = u(pixel_stride) * value_bytes, row = pixel * u(shapes.out_w);
  TensorMapArgs map{.dtype = stage.output_dtype(true), .rank = 4};
  map.size = {u(stage.k), u(shapes.out_w), u(shapes.out_h), u(stage.n)};
  map.stride = {0, pixel, row, row * u(shapes.out_h)};
  map.box = {block_channels, static_cast<std::uint32_t>(l.out_w - (without_first ? 1 : 0)),
             static_cast<std::uint32_t>(l.out_h), 1};
  return map;
}

}  // namespace convoy::cuda::sm90
