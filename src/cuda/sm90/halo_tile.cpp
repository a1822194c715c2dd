// Which tiles the halo family has, and for which stages.
#include "cuda/sm90/halo_tile.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/size.hpp"
#include "cuda/refusals.hpp"
#include "cuda/sm90/halo_layout.hpp"
#include "cuda/stage_facts.hpp"

namespace convoy::cuda::sm90 {

std::string HaloTile::name() const {
  static constexpr const char* schedules[] = {"channels", "rows", "pingpong"};
  const std::string box = inner == Inner::line
                              ? "line" + std::to_string(bw)
                              : std::to_string(bw) + "x" + std::to_string(bh) + "x" +
                                    std::to_string(bn) +
                                    (inner == Inner::images  ? "n"
                                     : inner == Inner::brick ? "b"
                                                             : "") +
                                    (time_steps > 1 ? "t" + std::to_string(time_steps) : "");
  return box + "." + schedules[static_cast<int>(schedule)] + (resident ? ".resident" : "") +
         (half ? ".half" : "") + (deep > 0 ? ".deep" + std::to_string(deep) : "");
}

int halo_steps(const Stage& stage, const HaloTile& tile) {
  if (stage.act.is_neuron() || gives_sums(stage)) return row_steps;
  if (!serves_narrow({tile.instruction_n(), tile.instructions()})) return 4;
  return stage.c <= step_channels ? 1 : stage.c <= 2 * step_channels ? 2 : row_steps;
}

bool pointwise(const Stage& stage) {
  return stage.r == 1 && stage.s == 1 && stage.stride == Extent(1) && stage.pad == Padding(0) &&
         !stage.pool &&
         (Size(stage.n) * stage.h * stage.w * halo_inputs(stage)).fits(most_line_pixels);
}

void refuse_halo(const Stage& stage, const DeviceFacts& device, Reasons& why) {
  Refusals(stage, why)
      .hopper(device)
      .channels_in_eights()
      .filters_in_eights()
      .no(stage.r * stage.s > max_taps,
          fmt::format("R*S = {}, at most {} taps fit the kernel's table", stage.r * stage.s,
                      max_taps))
      .no(stage.stride.h > 8 || stage.stride.w > 8, "a stride above 8")
      .no(halo_inputs(stage) > most_turns,
          fmt::format("{} steps with an input of their own, at most {} are served",
                      halo_inputs(stage), most_turns))
      .within(halo_limits);
}

Reasons halo_refusals(const Stage& stage, const DeviceFacts& device) {
  Reasons why = unserved(stage, served_by_halo, DeviceKind::cuda);
  refuse_halo(stage, device, why);
  return why;
}

Reasons halo_sums_refusals(const Stage& stage, const DeviceFacts& device) {
  Reasons why = unserved(stage, served_by_halo_sums, DeviceKind::cuda);
  refuse_halo(stage, device, why);
  return why;
}

namespace {

/// Calls `visit_one` with every tile that serves the stage and its layout, until it returns true.
/// Whether it did.
template <class Visit>
bool visit_tiles(const Stage& stage, const DeviceFacts& device, Visit visit_one) {
  const HaloInside alone;
  HaloLayouts layouts(stage, device, alone);
  const auto visit = [&](const HaloTile& tile) {
    if (!layouts.may_serve(tile)) return false;
    const HaloLayout layout = layouts.of(tile);
    return layout.x_slots > 0 && visit_one(tile, layout);
  };
  const auto all_of_box = [&](HaloTile tile) {
    for (const Schedule schedule : {Schedule::channels, Schedule::rows, Schedule::pingpong}) {
      for (const bool resident : {false, true}) {
        tile.schedule = schedule;
        tile.resident = resident;
        if (tile.schedule == Schedule::channels && stage.k <= block_channels) continue;
        for (const bool half : {false, true}) {
          tile.half = half;
          tile.deep = 0;
          if (visit(tile)) return true;
          for (const int deep : depths) {
            tile.deep = deep;
            if (visit(tile)) return true;
          }
        }
      }
    }
    return false;
  };
  const Index q = shapes_of(stage).q;
  const auto bricks = [&](const Accumulator& a, std::initializer_list<int> heights,
                          int time_steps) {
    for (const int bw : {2, 4}) {
      if (q > bw || 2 * q <= bw) continue;
      for (const int bh : heights)
        if (all_of_box({.inner = Inner::brick,
                        .bw = bw,
                        .bh = bh,
                        .bn = a.n / (bw * bh * time_steps),
                        .time_steps = time_steps}))
          return true;
    }
    return false;
  };
  if (const int time_steps = halo_time_steps(stage); time_steps > 1) {
    for (const auto& [n, several] : accumulators_of(time_steps)) {
      const HaloTile tile{.bw = 8, .bh = n / 8 / time_steps, .bn = 1, .time_steps = time_steps};
      HaloTile wide = tile, images = tile;
      wide.bw = 8 * several;
      images.bn = several;
      if (several == 1 ? all_of_box(tile) || bricks({n, 1}, {1, 2, 4}, time_steps)
                       : all_of_box(wide) || all_of_box(images))
        return true;
    }
  }
  for (const Accumulator& a : accumulators) {
    const int rows = a.n / 8, several = a.instructions;
    if (pointwise(stage)) {
      if (several == 1 && all_of_box({.inner = Inner::line, .bw = a.n, .bh = 1, .bn = 1}))
        return true;
      continue;
    }
    if (several == 1 && all_of_box({.inner = Inner::pixels, .bw = 8, .bh = rows, .bn = 1}))
      return true;
    if (several == 2 && all_of_box({.inner = Inner::pixels, .bw = 16, .bh = rows, .bn = 1}))
      return true;
    if (several > 1 && (all_of_box({.inner = Inner::pixels, .bw = 8, .bh = rows, .bn = several}) ||
                        all_of_box({.inner = Inner::images, .bw = rows, .bh = several, .bn = 8})))
      return true;
    if (several == 1 && bricks(a, {2, 4}, 1)) return true;
  }
  return false;
}

bool tiles_countable(const Stage& stage, const HaloLayout& l) {
  // With steps, tile numbers are divided by the CTAs, too (Divisor's bound, and what passes it).
  if (stage.act.is_neuron() && l.tiles() * halo_inputs(stage) > (Index{1} << 31) / l.grid)
    return false;
  return halo_countable(l);
}

}  // namespace

bool halo_serves(const Stage& stage, const DeviceFacts& device) {
  return visit_tiles(stage, device, [&](const HaloTile&, const HaloLayout& l) {
    return tiles_countable(stage, l);
  });
}

std::vector<HaloTile> fastest_first(std::vector<TimedTile> tiles) {
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const TimedTile& a, const TimedTile& b) { return a.seconds < b.seconds; });
  std::vector<HaloTile> ordered;
  ordered.reserve(tiles.size());
  for (const TimedTile& one : tiles) ordered.push_back(one.tile);
  return ordered;
}

std::vector<HaloTile> halo_tiles(const Stage& stage, const DeviceFacts& device) {
  // Arithmetics are compared at a batch that may be too large to run: its tiles are ranked all the
  // same.
  std::vector<TimedTile> found, beyond;
  visit_tiles(stage, device, [&](const HaloTile& tile, const HaloLayout& l) {
    (tiles_countable(stage, l) ? found : beyond)
        .push_back({tile, halo_seconds(stage, tile, l, device)});
    return false;
  });
  if (found.empty()) found = std::move(beyond);
  return fastest_first(std::move(found));
}

}  // namespace convoy::cuda::sm90
