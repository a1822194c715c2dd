#include "cuda/sm90/pair_tile.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "cuda/sm90/costs.hpp"
#include "cuda/sm90/pair_map.hpp"
#include "cuda/sm90/shared_memory.hpp"

namespace convoy::cuda::sm90 {
namespace {

constexpr int area_channels = row_channels;
/// Bytes of the second weights' ring: two blocks of 128 channels, four of 64.
constexpr int second_weights = 32 << 10;

}  // namespace

void refuse_pair(const Stage& first, const Stage& second, const DeviceFacts& device, Reasons& why) {
  const auto no = [&](bool refused, std::string reason) {
    if (refused) why.push_back(std::move(reason));
  };
  const auto refuse_stage = [&](const Stage& stage, std::string_view which) {
    Reasons of_stage;
    refuse_halo(stage, device, of_stage);
    for (const std::string& reason : of_stage) why.push_back(fmt::format("{}: {}", which, reason));
  };
  refuse_stage(first, "stage 1");
  refuse_stage(second, "stage 2");
  const Shapes middle = shapes_of(first);
  no(!first.pool, "the first stage does not pool: its tile would not fit beside the second's");
  no(first.k > 2 * area_channels, "the first stage has " + std::to_string(first.k) +
                                      " output channels, a CTA holds at most 128");
  no(second.r != 1 || second.s != 1, "the second stage is " + std::to_string(second.r) + "x" +
                                         std::to_string(second.s) + ", not 1x1");
  no(second.stride != Extent(1), "the second stage has a stride");
  no(second.pad != Padding(0), "the second stage is padded");
  no(second.n != first.n || second.h != middle.out_h || second.w != middle.out_w ||
         second.c != first.k,
     "the second stage's input is not the first's output");
  no(second.dtype != first.dtype, "the stages differ in type");
}

namespace {

/// Whether the tile's form serves the pair, whatever its size.
bool candidate(const Stage& first, const HaloTile& tile) {
  const Accumulator wanted{tile.instruction_n(), tile.instructions()};
  if (std::find(pair_accumulators.begin(), pair_accumulators.end(), wanted) ==
      pair_accumulators.end())
    return false;
  // Whole windows of the second pool.
  if (tile.inner != Inner::pixels || tile.bw % 4 != 0 || tile.bh % 4 != 0) return false;
  // Narrow stages only in ping-pong, a middle tile a warpgroup; wide ones never with half of the
  // pixels.
  const bool wide = first.k > area_channels;
  return tile.schedule == Schedule::pingpong || (wide && tile.schedule == Schedule::channels);
}

/// All but the offsets, which lie behind the first stage.
SecondLayout second_layout(const Stage& first, const Stage& second, const HaloTile& tile) {
  SecondLayout out;
  out.areas = first.k > area_channels ? 2 : 1;
  out.columns = middle_columns(tile.instruction_n(), tile.instructions());
  out.window_i = tile.bw > 8 ? 2 : tile.bh / 2;
  out.window_j = tile.bw / 4;
  out.log2_across = tile.bw > 8 ? 2 : 1;
  out.shrink = second.pool ? 4 : 2;
  out.blocks = ceil_div(second.k, 2 * area_channels) * 2;
  out.w_slot = area_channels * row_bytes * out.areas;
  // Those that stay are a ring of their own length: the consumer goes round it once a tile.
  out.w_slots = std::min(second_weights / out.w_slot, out.blocks);
  out.w_resident = out.blocks == out.w_slots;
  // A pooled fragment writes eight rows even where fewer exist.
  const int rows = second.pool ? std::max(out.columns / 4, 8) : out.columns;
  out.staging = round_up(rows * row_bytes, swizzle_bytes);
  return out;
}

}  // namespace

PairLayout pair_layout(const Stage& first, const Stage& second, const HaloTile& tile,
                       const DeviceFacts& device) {
  if (!candidate(first, tile)) return {};
  PairLayout out;
  SecondLayout& l = out.second = second_layout(first, second, tile);
  const int kept = l.w_slots * l.w_slot + 2 * l.staging;
  if (device.shared_bytes < static_cast<std::size_t>(kept)) return {};
  // The middle tile is a staging buffer without the spare row behind it.
  const bool both_blocks = l.areas == 2 && tile.schedule == Schedule::pingpong;
  out.first = halo_layout(first, tile, device,
                          {.kept_bytes = kept,
                           .staging = l.columns * row_bytes,
                           .sharers = both_blocks ? 2 : 1,
                           .alone = false});
  const HaloLayout& f = out.first;
  if (f.x_slots == 0 || !halo_countable(f)) return {};
  l.w_offset = f.end();
  l.staging_offset = l.w_offset + l.w_slots * l.w_slot;
  out.shared_bytes = f.shared_bytes + kept;
  return out;
}

double pair_seconds(const Stage& first, const HaloTile& tile, const PairLayout& layout,
                    const DeviceFacts& device) {
  // The first stage as it would run alone, the second's math among it, and the last tile's second
  // stage, which nothing covers.
  const PairCosts costs;
  const HaloLayout& l = layout.first;
  const SecondLayout& second = layout.second;
  const double math =
      1.0 * row_steps * second.areas * second.columns / 2 / costs.math * second.blocks;
  const auto tiles = static_cast<double>((l.tiles() / l.sharers + l.grid - 1) / l.grid);
  // Weights that stay must first come, to all CTAs at once: small tiles end before that.
  const double share = std::min(costs.most_l2, costs.l2 * device.sms / l.grid);
  const double first_math = 1.0 * row_steps * l.chunks * l.taps * tile.instruction_n() *
                            tile.instructions() * (second.areas == 2 ? 1.0 : 0.5);
  const double wait =
      tile.resident ? std::max(0.0, l.w_slots * double(l.w_slot) / share - first_math) : 0;
  return halo_seconds(first, tile, l, device) +
         (tiles * math + costs.block * second.blocks + wait) / (costs.clock * device.clock);
}

std::vector<HaloTile> pair_tiles(const Stage& first, const Stage& second,
                                 const DeviceFacts& device) {
  std::vector<TimedTile> found;
  const auto consider = [&](int bw, int bh, int bn) {
    for (const Schedule schedule : {Schedule::channels, Schedule::pingpong}) {
      for (const bool resident : {false, true}) {
        const HaloTile tile{Inner::pixels, bw, bh, bn, schedule, resident};
        const PairLayout layout = pair_layout(first, second, tile, device);
        if (layout.first.x_slots > 0)
          found.push_back({tile, pair_seconds(first, tile, layout, device)});
      }
    }
  };
  for (const Accumulator& a : pair_accumulators) {
    consider(8, a.n / 8, a.instructions);
    if (a.instructions == 2) consider(16, a.n / 8, 1);
  }
  return fastest_first(std::move(found));
}

TensorMapArgs pair_w_map(const Stage& second) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  return {.dtype = second.dtype,
          .rank = 3,
          .size = {row_channels, u(second.k), u(ceil_div(second.c, row_channels))},
          .stride = {0, row_bytes, u(second.k) * row_bytes},
          .box = {row_channels, block_channels, 1}};
}

TensorMapArgs pair_y_map(const Stage& second, const HaloTile& tile, Index pixel_stride) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const auto u32 = [](int v) { return static_cast<std::uint32_t>(v); };
  const Shapes shapes = shapes_of(second);
  const std::uint64_t pixel = u(pixel_stride) * value_bytes, row = pixel * u(shapes.out_w);
  const int shrink = second.pool ? 4 : 2;
  return {.dtype = second.dtype,
          .rank = 4,
          .size = {u(second.k), u(shapes.out_w), u(shapes.out_h), u(second.n)},
          .stride = {0, pixel, row, row * u(shapes.out_h)},
          .box = {block_channels, u32(tile.bw / shrink), u32(tile.bh / shrink), u32(tile.bn)}};
}

}  // namespace convoy::cuda::sm90
