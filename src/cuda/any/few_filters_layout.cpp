#include "cuda/any/few_filters_layout.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cuda/costs.hpp"
#include "cuda/refusals.hpp"
#include "cuda/stage_facts.hpp"
#include "math/divide.hpp"

namespace convoy::cuda {

using math::ceil_div;
using math::round_up;

namespace {

int filters_compiled(Index k) {
  return static_cast<int>(k == 5 || k == 7 ? k + 1 : k);
}

}  // namespace

void refuse_few_filters(const Stage& stage, Reasons& why) {
  Refusals refusals(stage, why);
  refusals
      .no(stage.k > few_filters_most,
          fmt::format("K = {}: expected {} at most", stage.k, few_filters_most))
      .no(stage.c < few_filters_least_channels,
          fmt::format("C = {}: expected {} or more", stage.c, few_filters_least_channels))
      .within(few_filters_limits);
  if (!refusals.none()) return;
  const FewFiltersLayout layout = few_filters_layout(stage);
  // A strip's pixels beyond the last are not computed, but where they would lie is.
  refusals
      .no(!layout.flat && (layout.q + few_filters_pixels) * stage.stride.w > few_filters_positions,
          "its stride leads beyond 2^30 pixels")
      .no(layout.all_strips() > few_filters_positions, too_many_tiles);
}

Reasons few_filters_refusals(const Stage& stage) {
  Reasons why = unserved(stage, served_by_few_filters, DeviceKind::cuda);
  refuse_few_filters(stage, why);
  return why;
}

FewFiltersChannels few_filters_channels(Index c) {
  FewFiltersChannels channels;
  channels.vector = c % 4 == 0 ? 4 : 1;
  const auto padded = [&](Index lanes) { return round_up(c, lanes * channels.vector); };
  // As many lanes as leave few of them idle in the last block: the more, the more strips' warps
  // there are to wait for memory.
  for (const int lanes : {32, 16, few_filters_least_lanes}) {
    channels.lanes = lanes;
    if (8 * padded(lanes) <= 9 * padded(few_filters_least_lanes)) break;
  }
  channels.blocks = static_cast<int>(padded(channels.lanes) / channels.of_block());
  return channels;
}

FewFiltersLayout few_filters_layout(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  FewFiltersLayout layout;
  layout.channels = few_filters_channels(stage.c);
  layout.filters = filters_compiled(stage.k);
  // Registers hold the pixels of wider filters beside the sums of up to four.
  const bool compiled = stage.s == 3 || ((stage.s == 5 || stage.s == 7) && stage.k <= 4);
  if (compiled && layout.channels.vector == 4 && stage.stride.w == 1 && stage.dil.w == 1)
    layout.row_taps = static_cast<int>(stage.s);
  layout.flat = stage.r == 1 && stage.s == 1 && stage.stride == Extent(1) &&
                stage.pad == Padding{} && stage.n * stage.h * stage.w < few_filters_positions;
  layout.p = layout.flat ? 1 : shapes.p;
  layout.q = layout.flat ? stage.n * stage.h * stage.w : shapes.q;
  layout.strips = ceil_div(layout.q, few_filters_pixels);
  layout.images = layout.flat ? 1 : stage.n;
  return layout;
}

std::vector<float> few_filters_weights(const Stage& stage, const float* w) {
  const FewFiltersLayout layout = few_filters_layout(stage);
  const FewFiltersChannels& channels = layout.channels;
  const Index taps = stage.r * stage.s, of_block = channels.of_block(),
              apart = channels.weights_apart();
  std::vector<float> packed(
      static_cast<std::size_t>(channels.blocks * taps * layout.filters * apart));
  for (Index k = 0; k < stage.k; ++k) {
    for (Index tap = 0; tap < taps; ++tap) {
      for (Index c = 0; c < stage.c; ++c) {
        const Index to = ((c / of_block * taps + tap) * layout.filters + k) * apart + c % of_block;
        packed[static_cast<std::size_t>(to)] = w[(k * taps + tap) * stage.c + c];
      }
    }
  }
  return packed;
}

std::string few_filters_tile_name(int threads) {
  return fmt::format("{} threads", threads);
}

std::vector<int> few_filters_tiles(const Stage& stage) {
  const int most = few_filters_threads(filters_compiled(stage.k));
  return {most / 4, most / 2, most};
}

double few_filters_seconds(const Stage& stage, int threads, const Machine& machine) {
  const FewFiltersCosts costs;
  const FewFiltersLayout layout = few_filters_layout(stage);
  const FewFiltersChannels& channels = layout.channels;
  const double k = layout.filters;
  // Of a turn of a warp's loop: multiply-adds, all instructions, lines of 128 bytes from the L1.
  double turns = static_cast<double>(channels.blocks * stage.r), multiplies, instructions, lines;
  if (layout.row_taps > 0) {
    const double taps = layout.row_taps, pixels = few_filters_pixels + taps - 1;
    multiplies = 32 * taps * k;
    instructions = multiplies + taps * k + costs.row + costs.row_pixel * pixels;
    lines = 4 * (pixels + taps * k);
  } else {
    turns *= static_cast<double>(stage.s);
    multiplies = 8.0 * channels.vector * k;
    instructions = multiplies + k + costs.tap;
    lines = channels.vector == 4 ? 4 * (8 + k) : 8 * 32.0 / channels.lanes + k;
  }
  instructions = turns * instructions + costs.strip + costs.strip_filter * k;
  // Multiply-adds of a multiprocessor's cycle, in warps.
  const double rate = machine.peak_flops / 2 / (machine.multiprocessors * machine.clock_hz) / 32;
  const double issued = std::max(instructions / 4, turns * multiplies / rate) / costs.issue_share;
  const double busy = std::max(issued, turns * lines / costs.l1_share),
               alone = instructions + turns * costs.latency;
  // What a CTA's strips, one below the other, read of x from the L2. A multiprocessor takes so many
  // CTAs at once, one batch of them after the other.
  const Index of_cta = threads / channels.lanes;
  const Index rows = std::min(of_cta, layout.p), columns = ceil_div(of_cta, rows);
  const auto read = [](Index outputs, Index stride, Index taps, Index dil) {
    return static_cast<double>(
        std::min((outputs - 1) * stride + (taps - 1) * dil + 1, outputs * taps));
  };
  const double bytes = 4.0 * static_cast<double>(stage.c) *
                       read(rows, stage.stride.h, stage.r, stage.dil.h) *
                       read(columns * few_filters_pixels, stage.stride.w, stage.s, stage.dil.w);
  const Index together = few_filters_threads(layout.filters) / threads;
  const Index ctas = ceil_div(ceil_div(layout.all_strips(), of_cta), machine.multiprocessors);
  const auto batch = [&](Index count) {
    const double of_one = std::max(threads / 32 * busy, bytes / costs.l2_bytes);
    return count == 0 ? 0 : std::max(static_cast<double>(count) * of_one, alone);
  };
  const double cycles =
      static_cast<double>(ctas / together) * batch(together) + batch(ctas % together);
  const double memory =
      cost_of(stage, 0, 0).bytes / (costs.memory_share * machine.memory_bandwidth);
  return costs.launch + std::hypot(cycles / (costs.clock * machine.clock_hz), memory);
}

}  // namespace convoy::cuda
