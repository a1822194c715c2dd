// How a tile of the halo family lies in shared memory: boxes, taps, slots, rings.
#include <algorithm>
#include <limits>
#include <span>

#include "cuda/sm90/halo_tile.hpp"

namespace convoy::cuda::sm90 {
namespace {

constexpr int row_bytes = 128;  // 64 channels of 16 bits: one row of a swizzled box
constexpr int barrier_bytes = 1024;
constexpr int most_box = 256;    // elements of an axis that TMA takes
constexpr int alignment = 1024;  // the swizzle's period
constexpr int most_w_slots = 48;

int ceil_div(Index a, Index b) {
  return static_cast<int>((a + b - 1) / b);
}
int round_up(int a, int b) {
  return (a + b - 1) / b * b;
}
bool pooled(const Stage& stage) {
  return stage.pool.has_value();
}

/// Whether a tap's math is short against what lies between two slabs.
bool small(const HaloTile& tile) {
  return tile.instruction_n() * tile.instructions() <= 128 && tile.cta_channels() <= 64;
}

bool compiled(const HaloTile& tile) {
  const Accumulator wanted{tile.instruction_n(), tile.instructions()};
  if (tile.half && (!serves_half(wanted) || tile.schedule != Schedule::pingpong || tile.resident))
    return false;
  return std::find(accumulators.begin(), accumulators.end(), wanted) != accumulators.end();
}

/// Taps, grouped into views by the parity of their offset, so that stride and dilation become plain
/// shifts inside a box. The order is the arithmetic's: it depends on the stage alone.
void lay_taps(const Stage& stage, bool one_tap_a_view, HaloLayout& out) {
  struct Tap {
    int dy, dx, index;
  };
  const int sh = static_cast<int>(stage.stride.h), sw = static_cast<int>(stage.stride.w);
  int reach_w = 0, reach_h = 0, taps = 0, views = 0;
  for (int py = 0; py < sh; ++py) {
    for (int px = 0; px < sw; ++px) {
      std::array<Tap, max_taps> members;  // no vector: a plan lays out hundreds of tiles
      std::size_t count = 0;
      for (int r = 0; r < stage.r; ++r) {
        for (int s = 0; s < stage.s; ++s) {
          const int dy = r * static_cast<int>(stage.dil.h), dx = s * static_cast<int>(stage.dil.w);
          if (dy % sh == py && dx % sw == px)
            members[count++] = {dy, dx, r * static_cast<int>(stage.s) + s};
        }
      }
      for (const Tap& tap : std::span(members).first(count)) {
        const bool opens = one_tap_a_view || &tap == &members.front();
        const auto t = static_cast<std::size_t>(taps++);
        if (opens) {
          const int dx = one_tap_a_view ? tap.dx : px, dy = one_tap_a_view ? tap.dy : py;
          out.view[static_cast<std::size_t>(views++)] = {static_cast<std::int16_t>(dx),
                                                         static_cast<std::int16_t>(dy),
                                                         static_cast<std::uint8_t>(t), 0};
        }
        View& view = out.view[static_cast<std::size_t>(views - 1)];
        ++view.count;
        const int x = (tap.dx - view.dx) / sw, y = (tap.dy - view.dy) / sh;
        reach_w = std::max(reach_w, x);
        reach_h = std::max(reach_h, y);
        out.tap_index[t] = static_cast<std::uint8_t>(tap.index);
        out.tap_shift[t] = static_cast<std::uint16_t>(y << 8 | x);  // turned into a shift below
      }
    }
  }
  out.taps = taps;
  out.views = views;
  out.box_w = reach_w;
  out.box_h = reach_h;
}

/// How many tiles there are, and CTAs to walk over them.
void lay_grid(const Stage& stage, const HaloTile& tile, const DeviceFacts& device,
              HaloLayout& out) {
  const Shapes shapes = shapes_of(stage);
  const int window = pooled(stage) ? 2 : 1;
  out.k_blocks = ceil_div(stage.k, tile.cta_channels());
  if (tile.inner == Inner::line) {
    out.tiles_x = ceil_div(stage.n * stage.h * stage.w, tile.cta_columns());
    out.tiles_y = out.tiles_n = 1;
  } else {
    out.tiles_x = ceil_div(shapes.out_w * window, tile.bw);
    out.tiles_y = ceil_div(shapes.out_h * window, tile.cta_rows());
    out.tiles_n = ceil_div(stage.n, tile.bn);
  }
  out.grid = static_cast<int>(std::min<Index>(device.sms, out.tiles()));
  // A CTA with resident weights keeps its channel block: tile % k_blocks must not change as it
  // walks.
  if (tile.resident) out.grid = std::max(out.k_blocks, out.grid / out.k_blocks * out.k_blocks);
  out.crowded = 2 * out.grid > device.sms;
}

/// Puts all boxes of `deep` chunks into a slot: the table of taps then runs over all of them, and a
/// slab of weights over as many of the taps as leaves their ring deep enough. `whole`: the chunks
/// are of 64 channels. `room`: for both rings.
void deepen(const HaloTile& tile, bool whole, int deep, int room, HaloLayout& out) {
  out.slot_chunks = deep;
  out.slot_views = out.views;
  // A view's boxes of all blocks lie one after the other, as one load brings them.
  if (whole) out.load_chunks = deep, out.x_box = out.x_bytes;
  for (int v = 0; v < out.views; ++v) {
    const View& view = out.view[static_cast<std::size_t>(v)];
    for (int t = view.first; t < view.first + view.count; ++t)
      out.tap_shift[static_cast<std::size_t>(t)] +=
          static_cast<std::uint16_t>(v * deep * out.x_box / 16);
  }
  for (int t = out.taps; t < out.slot_taps(); ++t) {
    const auto to = static_cast<std::size_t>(t), from = static_cast<std::size_t>(t - out.taps);
    out.tap_shift[to] = static_cast<std::uint16_t>(out.tap_shift[from] + out.x_box / 16);
  }
  out.x_slot = round_up(deep * out.views * out.x_box, alignment);
  const int tap_bytes = tile.cta_channels() * row_bytes;
  const auto slabs = [&](int taps) { return (room - 2 * out.x_slot) / (taps * tap_bytes); };
  out.slab_taps = out.slot_taps();
  if (room / (out.x_slot + out.slot_taps() * tap_bytes) < 3) {
    while (out.slab_taps > 1 && (out.slot_taps() % out.slab_taps != 0 || slabs(out.slab_taps) < 4 ||
                                 out.slab_taps == out.slot_taps()))
      --out.slab_taps;
  }
}

/// Where a CTA has a single tile whose boxes and weights fit into its shared memory, the rings hold
/// them all: nothing waits for a slot, and slabs are large, so that what lies between two of them
/// shows less often. Whether they do.
bool hold_tile(const HaloTile& tile, int rings, bool pieces, HaloLayout& out) {
  if (out.grid != out.tiles() || (tile.deep == 0 && out.views > 1)) return false;
  const int tap_bytes = tile.cta_channels() * row_bytes,
            slot_taps = tile.deep > 0 ? out.slot_taps() : out.taps;
  const Index slots = out.slots_a_tile(),
              held = slots * out.x_slot + Index{out.chunks} * out.taps * tap_bytes;
  // Where launches lie beside each other, weights come under the math of the one before; else the
  // math begins with the first of them.
  const int most = (out.crowded ? 48 << 10 : rings) / tap_bytes;
  int slab_taps = std::clamp(most, 1, slot_taps);
  while (slot_taps % slab_taps != 0) --slab_taps;
  const Index slabs = slots * slot_taps / slab_taps;
  if (2 * out.staging + held > rings || 8 * (2 * slots + 2 * slabs + 2) > barrier_bytes)
    return false;
  out.slab_taps = slab_taps;
  out.w_slot = slab_taps * tap_bytes;
  out.x_slots = static_cast<int>(slots);
  out.w_slots = static_cast<int>(slabs);
  out.store_buffers = pieces && 4 * out.staging + held <= rings ? 2 : 1;
  out.shared_bytes =
      alignment + barrier_bytes + 2 * out.store_buffers * out.staging + static_cast<int>(held);
  return true;
}

/// Pixels queue behind the weights that were asked for before them. Where a launch cannot lie
/// beside the one before, only so much is as comes by the time that they may be read; but never so
/// little that the first box could be given back before the producers of weights have looked at its
/// slot.
void limit_early_slabs(const HaloTile& tile, HaloLayout& out) {
  constexpr int bytes = 80 << 10;
  const int taps = tile.deep > 0 ? out.slot_taps() : out.view[0].count;
  out.early_slabs = std::max(1, bytes / out.w_slot);
  if (!out.crowded || out.early_slabs + 1 >= taps / out.slab_taps)
    out.early_slabs = std::numeric_limits<int>::max();
}

HaloLayout lay(const Stage& stage, const HaloTile& tile, const DeviceFacts& device,
               bool one_tap_a_view) {
  HaloLayout out;
  lay_taps(stage, one_tap_a_view, out);
  const bool images = tile.inner == Inner::images;
  const int window = pooled(stage) ? 2 : 1;
  lay_grid(stage, tile, device, out);
  out.chunks = ceil_div(stage.c, 64);
  out.box_w += tile.cta_columns();
  out.box_h += tile.cta_rows();
  out.box_n = tile.bn;
  const auto spans = [](int box, Index step) { return (box - 1) * step + 1; };
  const Index box_bytes = Index{out.box_w} * out.box_h * out.box_n * row_bytes;
  if (spans(out.box_w, stage.stride.w) > most_box || spans(out.box_h, stage.stride.h) > most_box ||
      box_bytes > static_cast<Index>(device.shared_bytes))
    return out;  // without slots, and without what follows from a box of that size
  const int pixel =
      images ? 8 * row_bytes : row_bytes;  // bytes from a pixel to its right neighbour
  const int row = tile.inner == Inner::line ? 8 * pixel : out.box_w * pixel;
  for (int t = 0; t < out.taps; ++t) {
    auto& shift = out.tap_shift[static_cast<std::size_t>(t)];
    shift = static_cast<std::uint16_t>(((shift >> 8) * row + (shift & 255) * pixel) / 16);
  }
  out.x_bytes = static_cast<int>(box_bytes);
  out.x_box = out.x_slot = round_up(out.x_bytes, alignment);
  out.group_stride = images ? 8 * row_bytes : row;
  out.instruction_stride = images ? row : (tile.bw > 8 ? 8 * row_bytes : row * out.box_h);
  if (tile.schedule == Schedule::rows)
    out.warpgroup_stride = tile.inner == Inner::line ? tile.bw * pixel : tile.bh * row;

  const int stored_w = tile.bw / window, stored_h = tile.bh / window;
  out.stored_pixels = pooled(stage) ? stored_w * stored_h * tile.bn
                                    : tile.instruction_n() / store_pieces(tile.instruction_n());
  out.store_j = images ? 8 : stored_w;
  out.store_i = images ? 8 * stored_w : (tile.bw > 8 ? 8 / window : stored_w * stored_h);
  out.staging = round_up((out.stored_pixels + (pooled(stage) ? 1 : 0)) * row_bytes,
                         alignment);  // + 1: Units::row's spare

  // A tap of a single tile takes less time than a producer does to fill a slot (halo_load.cuh), a
  // whole filter row more: in ping-pong, and where weights are resident, a slab is a row. Two
  // warpgroups at once need a slab half as often: single taps give their ring more depth.
  const bool one_view = out.views == 1 && out.taps == stage.r * stage.s;
  const int tap_bytes = tile.cta_channels() * row_bytes, row_taps = static_cast<int>(stage.s);
  const int rings = static_cast<int>(device.shared_bytes) - alignment - barrier_bytes;
  const int row_needs = (stage.r > 1 ? 2 : 3) * out.x_slot + 3 * row_taps * tap_bytes;
  const bool row_fits = rings - 2 * out.staging >= row_needs;
  const bool by_row =
      small(tile) || tile.resident || (tile.schedule == Schedule::pingpong && row_fits);
  out.slab_taps = one_view && by_row ? row_taps : 1;
  if (tile.deep > 0) {
    if (tile.deep == 1 && out.views == 1) return out;  // the same as no depth
    deepen(tile, whole_chunks(stage), tile.deep, rings - 2 * out.staging, out);
    out.tap_shift[0] |= opens_slot;
  } else {
    for (int v = 0; v < out.views; ++v)
      out.tap_shift[out.view[static_cast<std::size_t>(v)].first] |= opens_slot;
  }
  const bool pieces = !pooled(stage) && store_pieces(tile.instruction_n()) == 2;
  if (hold_tile(tile, rings, pieces, out)) {
    limit_early_slabs(tile, out);
    return out;
  }
  out.w_slot = tap_bytes * out.slab_taps;
  const bool room_for_two =
      out.slab_taps == 1 || tile.resident || rings - 4 * out.staging >= row_needs;
  out.store_buffers = pieces && room_for_two ? 2 : 1;
  const int staged = 2 * out.store_buffers * out.staging, room = rings - staged;
  const int all_w = out.slabs_a_tile();
  // A warpgroup gives a slot back one slab after its last: one of a single slab holds the slot
  // before it, its own and waits for the next.
  int fewest = tile.deep > 0 && out.slab_taps == out.slot_taps() ? 3 : 2;
  for (int v = 0; v < out.views && tile.deep == 0; ++v) {
    if (out.view[static_cast<std::size_t>(v)].count == out.slab_taps) fewest = 3;
  }
  int w_fewest = 3;
  if (tile.resident && all_w > most_w_slots) return out;
  if (tile.resident) {
    out.w_slots = w_fewest = all_w;
    out.x_slots = std::min(6, (room - all_w * out.w_slot) / out.x_slot);
  } else if (tile.deep > 0 ? fewest == 3 : out.taps / out.views < 2) {
    out.x_slots = out.w_slots = std::min(8, room / (out.x_slot + out.w_slot));
  } else {
    // Few boxes hide the load of one behind the taps of the other; weights need the depth.
    out.x_slots = fewest;
    out.w_slots = std::min(10, (room - fewest * out.x_slot) / out.w_slot);
    const int spare = room - (fewest + 1) * out.x_slot - (out.slab_taps > 1 ? 3 : 6) * out.w_slot;
    if (spare >= 0) {
      out.x_slots = fewest + 1 + std::min(3, spare / out.x_slot);
      out.w_slots = std::min(10, (room - out.x_slots * out.x_slot) / out.w_slot);
    }
  }
  if (out.x_slots < fewest || out.w_slots < w_fewest || out.w_slots > most_w_slots) {
    out.x_slots = 0;
    return out;
  }
  out.shared_bytes =
      alignment + barrier_bytes + staged + out.x_slots * out.x_slot + out.w_slots * out.w_slot;
  limit_early_slabs(tile, out);
  return out;
}

}  // namespace

std::vector<int> halo_tap_order(const Stage& stage) {
  HaloLayout layout;
  lay_taps(stage, false, layout);
  return {layout.tap_index.begin(), layout.tap_index.begin() + layout.taps};
}

int halo_tiles_of(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                  Index images) {
  if (tile.inner == Inner::line)
    return layout.k_blocks * ceil_div(images * stage.h * stage.w, tile.cta_columns());
  return layout.k_blocks * layout.tiles_x * layout.tiles_y * ceil_div(images, tile.bn);
}

HaloLayout halo_layout(const Stage& stage, const HaloTile& tile, const DeviceFacts& device) {
  const bool even = tile.bw % 2 == 0 && tile.bh % 2 == 0;
  HaloLayout none;
  if (!compiled(tile) || (pooled(stage) && !even)) return none;
  if (tile.inner == Inner::images && tile.bn != 8) return none;
  if (tile.inner == Inner::pixels && tile.bw > 8 && (tile.bw != 16 || tile.bn != 1)) return none;
  if (tile.inner == Inner::line && (!pointwise(stage) || tile.bh != 1 || tile.bn != 1)) return none;
  // A deep slot is worth the wait for all its boxes only where a tap's math is short.
  if (tile.deep > 0 && (!small(tile) || tile.resident || ceil_div(stage.c, 64) % tile.deep != 0 ||
                        tile.deep * stage.r * stage.s > max_taps))
    return none;
  HaloLayout out = lay(stage, tile, device, false);
  if (out.x_slots == 0 && tile.deep == 0) out = lay(stage, tile, device, true);
  return out.x_slots > 0 ? out : none;
}

}  // namespace convoy::cuda::sm90
