// The geometry of few: which tile of a stage a CTA works on, and what lies where in shared memory.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "cuda/refusals.hpp"
#include "cuda/sm90/costs.hpp"
#include "cuda/sm90/few_layout.hpp"
#include "cuda/sm90/shared_memory.hpp"
#include "cuda/stage_facts.hpp"
#include "math/divide.hpp"

namespace convoy::cuda::sm90 {
namespace {

constexpr int most_pixels = few_blocks * few_block_pixels;
constexpr int box_slots = 8;
constexpr int few_barrier_bytes = 256;
constexpr int most_resident_bytes = 64 << 10;

int to_int(Index v) {
  return static_cast<int>(v);
}

/// Pixels of the image that the boxes along one axis cover, each as often as it is loaded; what
/// lies outside is zero and costs nothing.
double covered(Index tiles, int box, Index image, int halo) {
  return static_cast<double>(std::min(tiles * box, image + (tiles - 1) * halo));
}

/// What is known before the tile is chosen.
FewLayout without_tile(const Stage& stage) {
  FewLayout l;
  l.chunks = ceil_div(stage.c, row_channels);
  l.columns = stage.k * stage.r * stage.s <= 32 ? 32 : 64;
  l.w_bytes = l.columns * row_bytes;
  l.resident = Index{l.chunks} * l.w_bytes <= most_resident_bytes;
  l.flat = stage.r == 1 && stage.s == 1 && !stage.pool && stage.pad == Padding{} &&
           (Size(stage.n) * stage.h * stage.w).fits(most_flat_pixels);
  return l;
}

/// Slots, and z beside or over them; false: they do not fit. A flat layout has no z.
bool fit(const Stage& stage, int room, int most_slots, FewLayout& l) {
  l.blocks = to_int(math::ceil_div(Index{l.box_w} * l.box_h, few_block_pixels));
  l.slot_bytes = l.blocks * few_block_pixels * row_bytes + (l.resident ? 0 : l.w_bytes);
  const int fixed = (l.resident ? l.chunks * l.w_bytes : 0) + few_barrier_bytes + swizzle_bytes;
  l.z_pitch = l.flat ? 0 : l.blocks * few_block_pixels + 4;
  const int z =
      to_int(math::ceil_div(stage.k * stage.r * stage.s * l.z_pitch * 4, row_bytes) * row_bytes);
  l.slots = std::min(most_slots, (room - fixed - z) / l.slot_bytes);
  l.z_over_slots = !l.flat && l.slots < 2;
  if (l.z_over_slots)
    l.slots = fixed + z > room ? 0 : std::min(l.chunks, (room - fixed) / l.slot_bytes);
  const int slots = l.slots * l.slot_bytes;
  l.shared_bytes = fixed + (l.z_over_slots ? std::max(slots, z) : slots + z);
  l.barriers = l.shared_bytes - few_barrier_bytes - swizzle_bytes;
  return l.slots > 0;
}

void keep_better(const Stage& stage, const DeviceFacts& device, int ctas, FewLayout& l,
                 FewLayout& best, double& best_cycles) {
  l.grid = to_int(std::min<Index>(ctas, few_tiles(stage, l)));
  const double cycles = few_cycles(stage, l, device);
  if (cycles >= best_cycles) return;
  best_cycles = cycles;
  best = l;
}

FewLayout flat_layout(const Stage& stage, const DeviceFacts& device) {
  FewLayout best;
  double best_cycles = std::numeric_limits<double>::max();
  for (const int blocks : {2, 4, 1}) {
    FewLayout l = without_tile(stage);
    if (blocks * l.columns > few_flat_columns) continue;
    l.out_w = l.box_w = blocks * few_block_pixels;
    l.out_h = l.box_h = 1;
    // More slots than these of memory's loads in flight at once are slower.
    const int slots = std::max(2, (32 << 10) / (blocks * few_block_pixels * row_bytes));
    if (!fit(stage, to_int(device.shared_bytes), slots, l)) continue;
    // Room for two CTAs and no third: the next launch's would fill up some multiprocessors early
    // and leave others with one.
    l.shared_bytes = std::max(l.shared_bytes, 228 * 1024 / 3);
    l.tiles_x = to_int(few_tiles(stage, l));
    l.tiles_y = l.images = 1;
    keep_better(stage, device, 2 * device.sms, l, best, best_cycles);
  }
  return best;
}

FewLayout box_layout(const Stage& stage, const DeviceFacts& device) {
  const Shapes shapes = shapes_of(stage);
  const int window = stage.pool ? 2 : 1;
  const int conv_w = to_int(shapes.out_w) * window, conv_h = to_int(shapes.out_h) * window;
  const int halo_w = to_int(stage.s) - 1, halo_h = to_int(stage.r) - 1;
  FewLayout best;
  double best_cycles = std::numeric_limits<double>::max();
  // Steps of 8 columns and 4 rows, or all there are.
  const auto step = [](int v, int by, int last) {
    return v < last ? std::min(v + by, last) : v + 1;
  };
  const int widest = std::min(conv_w, (256 - halo_w) / window * window);
  for (int w = std::min(8, widest); w <= widest; w = step(w, 8, widest)) {
    const int rows = std::min(most_pixels / (w + halo_w), 256) - halo_h,
              highest = std::min(conv_h, rows / window * window);
    for (int h = std::min(4, highest); h > 0 && h <= highest; h = step(h, 4, highest)) {
      FewLayout l = without_tile(stage);
      l.out_w = w;
      l.out_h = h;
      l.box_w = w + halo_w;
      l.box_h = h + halo_h;
      if (!fit(stage, to_int(device.shared_bytes), box_slots, l)) continue;
      l.tiles_x = to_int(math::ceil_div(conv_w, w));
      l.tiles_y = to_int(math::ceil_div(conv_h, h));
      l.images = to_int(stage.n);
      keep_better(stage, device, device.sms, l, best, best_cycles);
    }
  }
  return best;
}

}  // namespace

void refuse_few(const Stage& stage, const DeviceFacts& device, Reasons& why) {
  Refusals refusals(stage, why);
  refusals.hopper(device)
      .channels_in_eights()
      .no(stage.k * stage.r * stage.s > 64,
          fmt::format("K*R*S = {}, at most 64 rows fit", stage.k * stage.r * stage.s))
      .within(few_limits);
  if (refusals.none()) {
    const FewLayout layout = few_layout(stage, device);
    const bool fits = layout.slots > 0;
    refusals
        .no(!fits, fmt::format("no box of at most {} pixels fits in shared memory", most_pixels))
        .no(fits && !(layout.flat ? countable({}, layout.tiles_x)
                                  : countable({layout.tiles_x, layout.tiles_y}, layout.images)),
            too_many_tiles);
  }
}

Reasons few_refusals(const Stage& stage, const DeviceFacts& device) {
  Reasons why = unserved(stage, served_by_few, DeviceKind::cuda);
  refuse_few(stage, device, why);
  return why;
}

FewLayout few_layout(const Stage& stage, const DeviceFacts& device) {
  return without_tile(stage).flat ? flat_layout(stage, device) : box_layout(stage, device);
}

std::string few_tile_name(const FewLayout& layout) {
  return fmt::format("{}x{}", layout.out_w, layout.out_h);
}

Index few_tiles(const Stage& stage, const FewLayout& l) {
  return l.flat ? math::ceil_div(stage.n * stage.h * stage.w, l.out_w)
                : stage.n * l.tiles_x * l.tiles_y;
}

double few_cycles(const Stage& stage, const FewLayout& l, const DeviceFacts& device) {
  const FewCosts costs;
  const double turns = static_cast<double>(math::ceil_div(few_tiles(stage, l), l.grid));
  const int halo_w = l.box_w - l.out_w, halo_h = l.box_h - l.out_h;
  const double pixels = l.flat ? l.out_w
                               : covered(l.tiles_x, l.box_w, stage.w, halo_w) *
                                     covered(l.tiles_y, l.box_h, stage.h, halo_h) /
                                     (1.0 * l.tiles_x * l.tiles_y);
  // A pixel of a chunk of channels: what the memory gives all CTAs, or all that one can take.
  const double all = Loaded(device, costs.clock, costs.load).memory;
  const double load = l.chunks * pixels * std::max(row_bytes * l.grid / all, costs.least_pixel);
  if (l.flat) return turns * std::max(load, costs.least_line) + costs.last_line;
  const double sums = costs.tile + costs.tile_pixel * pixels;
  return l.z_over_slots ? turns * (load + sums + costs.over_slots)
                        : turns * std::max(load, sums) + sums;
}

TensorMapArgs few_x_map(const Stage& stage, const FewLayout& l, Index pixel_stride) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t pixel = u(pixel_stride) * value_bytes;
  TensorMapArgs map{.dtype = stage.dtype, .rank = 4};
  if (l.flat)
    map.size = {u(stage.c), u(stage.n * stage.h * stage.w), 1, 1};
  else
    map.size = {u(stage.c), u(stage.w), u(stage.h), u(stage.n)};
  map.stride = {0, pixel, pixel * u(stage.w), pixel * u(stage.w) * u(stage.h)};
  map.box = {row_channels, static_cast<std::uint32_t>(l.box_w), static_cast<std::uint32_t>(l.box_h),
             1};
  return map;
}

TensorMapArgs few_w_map(const Stage& stage, const FewLayout& l) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  TensorMapArgs map{.dtype = stage.dtype, .rank = 3};
  map.size = {u(stage.c), u(stage.k * stage.r * stage.s), 1};
  const std::uint64_t tap = u(stage.c) * value_bytes;
  map.stride = {0, tap, tap * u(stage.k * stage.r * stage.s)};
  map.box = {row_channels, static_cast<std::uint32_t>(l.columns), 1};
  return map;
}

}  // namespace convoy::cuda::sm90
