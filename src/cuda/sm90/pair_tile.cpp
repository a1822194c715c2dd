#include "cuda/sm90/pair_tile.hpp"

#include <algorithm>
#include <limits>

#include "cuda/family.hpp"
#include "cuda/sm90/pair_map.hpp"

namespace convoy::cuda::sm90 {
namespace {

constexpr int row_bytes = 128, barrier_bytes = 1024, alignment = 1024;
constexpr int area_channels = 64;
constexpr int second_weights =
    32768;  // bytes of their ring: two blocks of 128 channels, four of 64

int round_up(int a, int b) {
  return (a + b - 1) / b * b;
}
int ceil_div(Index a, Index b) {
  return static_cast<int>((a + b - 1) / b);
}

}  // namespace

std::vector<std::string> pair_refusals(const Stage& first, const Stage& second,
                                       const DeviceFacts& device) {
  std::vector<std::string> why;
  for (std::string& reason : halo_refusals(first, device))
    why.push_back("first stage: " + std::move(reason));
  for (std::string& reason : halo_refusals(second, device))
    why.push_back("second stage: " + std::move(reason));
  const auto no = [&](bool refused, std::string reason) {
    if (refused) why.push_back(std::move(reason));
  };
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
  return why;
}

PairLayout pair_layout(const Stage& first, const Stage& second, const HaloTile& tile,
                       const DeviceFacts& device) {
  PairLayout out, none;
  const Accumulator accumulator{tile.instruction_n(), tile.instructions()};
  if (std::find(pair_accumulators.begin(), pair_accumulators.end(), accumulator) ==
          pair_accumulators.end() ||
      tile.inner != Inner::pixels || tile.bw % 4 != 0 || tile.bh % 4 != 0)
    return none;
  const bool wide = first.k > area_channels, pingpong = tile.schedule == Schedule::pingpong;
  // Narrow stages only in ping-pong, a middle tile a warpgroup; wide ones never with half of the
  // pixels.
  if (!pingpong && (!wide || tile.schedule != Schedule::channels)) return none;
  out.sharers = wide && pingpong ? 2 : 1;
  out.areas = wide ? 2 : 1;
  out.columns = middle_columns(accumulator.n, accumulator.instructions);
  out.window_i = tile.bw > 8 ? 2 : tile.bh / 2;
  out.window_j = tile.bw / 4;
  out.blocks = ceil_div(second.k, 128) * 2;
  out.w2_slot = 64 * row_bytes * out.areas;
  out.w2_slots = second_weights / out.w2_slot;
  // A pooled unit writes eight rows even where fewer exist.
  out.staging2 =
      round_up((second.pool ? std::max(out.columns / 4, 8) : out.columns) * row_bytes, alignment);

  // The middle tile needs less than halo's staging: no spare row behind it.
  const int own = out.w2_slots * out.w2_slot + 2 * out.staging2, staging = out.columns * row_bytes,
            spare = 2 * (halo_layout(first, tile, device).staging - staging);
  DeviceFacts rest = device;
  if (device.shared_bytes < static_cast<std::size_t>(own)) return none;
  rest.shared_bytes += static_cast<std::size_t>(spare - own);
  HaloLayout& l = out.first;
  rest.sms = 1;  // one tile's boxes and weights shall not fill the rings
  l = halo_layout(first, tile, rest);
  if (l.x_slots == 0) return none;
  l.early_slabs = std::numeric_limits<int>::max();
  l.staging = staging;
  l.shared_bytes -= spare;
  rest.shared_bytes -= static_cast<std::size_t>(spare);
  if (out.sharers == 2) {
    // Both warpgroups walk over a tile's boxes one after the other: all of them must be there, and
    // one more for what comes next. Weights stream, a filter row at a time: a tap does not cover
    // what lies between two slabs.
    if (tile.resident) return none;
    if (l.views == 1 && l.taps == first.r * first.s) {
      l.slab_taps = static_cast<int>(first.s);
      l.w_slot = tile.cta_channels() * row_bytes * l.slab_taps;
    }
    l.x_slots = l.chunks * l.views + 1;
    const Index room = static_cast<Index>(rest.shared_bytes) - alignment - barrier_bytes -
                       2 * l.staging - Index{l.x_slots} * l.x_slot;
    if (room < 3 * l.w_slot) return none;
    l.w_slots = static_cast<int>(std::min<Index>(10, room / l.w_slot));
    l.shared_bytes =
        alignment + barrier_bytes + 2 * l.staging + l.x_slots * l.x_slot + l.w_slots * l.w_slot;
  }
  out.shared_bytes = l.shared_bytes + own;
  if (!countable({l.k_blocks, l.tiles_x, l.tiles_y, l.tiles_n})) return none;
  out.grid = static_cast<int>(std::min<Index>(device.sms, l.tiles() / out.sharers));
  l.grid = out.grid;
  l.crowded = 2 * out.grid > device.sms;
  return out;
}

double pair_seconds(const Stage& first, const HaloTile& tile, const PairLayout& layout) {
  // The first stage as it would run alone, the second's math among it, and the last tile's second
  // stage, which nothing covers. Fits to measured tiles (bench/results/h200).
  constexpr double clock = 1.45e9, rate = 0.8, block = 400;
  const double math = 4.0 * layout.areas * layout.columns / 2 / rate * layout.blocks;
  const Index tiles = (layout.first.tiles() / layout.sharers + layout.grid - 1) / layout.grid;
  // Weights that stay must first come, to all CTAs at once: small tiles end before that.
  const HaloLayout& l = layout.first;
  const double share = std::min(60.0, 5300.0 / layout.grid);  // of the L2, bytes a cycle
  const double first_math = 4.0 * l.chunks * l.taps * tile.instruction_n() * tile.instructions() *
                            (layout.areas == 2 ? 1.0 : 0.5);
  const double wait =
      tile.resident ? std::max(0.0, l.w_slots * double(l.w_slot) / share - first_math) : 0;
  return halo_seconds(first, tile, l) +
         (static_cast<double>(tiles) * math + block * layout.blocks + wait) / clock;
}

std::vector<HaloTile> pair_tiles(const Stage& first, const Stage& second,
                                 const DeviceFacts& device) {
  struct Ranked {
    HaloTile tile;
    double seconds;
  };
  std::vector<Ranked> found;
  const auto consider = [&](int bw, int bh, int bn) {
    for (const Schedule schedule : {Schedule::channels, Schedule::pingpong}) {
      for (const bool resident : {false, true}) {
        const HaloTile tile{Inner::pixels, bw, bh, bn, schedule, resident};
        const PairLayout layout = pair_layout(first, second, tile, device);
        if (layout.first.x_slots > 0) found.push_back({tile, pair_seconds(first, tile, layout)});
      }
    }
  };
  for (const Accumulator& a : pair_accumulators) {
    consider(8, a.n / 8, a.instructions);
    if (a.instructions == 2) consider(16, a.n / 8, 1);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Ranked& a, const Ranked& b) { return a.seconds < b.seconds; });
  std::vector<HaloTile> tiles;
  for (const Ranked& r : found) tiles.push_back(r.tile);
  return tiles;
}

TensorMapArgs pair_w_map(const Stage& second) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  return {.dtype = second.dtype,
          .rank = 3,
          .size = {64, u(second.k), u((second.c + 63) / 64)},
          .stride = {0, 128, u(second.k) * 128},
          .box = {64, 64, 1}};
}

TensorMapArgs pair_y_map(const Stage& second, const HaloTile& tile, Index pixel_stride) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const auto u32 = [](int v) { return static_cast<std::uint32_t>(v); };
  const Shapes shapes = shapes_of(second);
  const std::uint64_t pixel = u(pixel_stride) * 2, row = pixel * u(shapes.out_w);
  const int shrink = second.pool ? 4 : 2;
  return {.dtype = second.dtype,
          .rank = 4,
          .size = {u(second.k), u(shapes.out_w), u(shapes.out_h), u(second.n)},
          .stride = {0, pixel, row, row * u(shapes.out_h)},
          .box = {64, u32(tile.bw / shrink), u32(tile.bh / shrink), u32(tile.bn)}};
}

}  // namespace convoy::cuda::sm90
