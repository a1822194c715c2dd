// The pipeline of a halo layout: slabs of weights, slots of the rings, and where they lie.
#include <algorithm>
#include <span>

#include "cuda/sm90/halo_case.hpp"

namespace convoy::cuda::sm90 {
namespace {

std::span<const TapBox> boxes_of(const HaloLayout& l) {
  return std::span(l.box).first(static_cast<std::size_t>(l.boxes));
}

// Depths of the rings. The tiles that the cost model was fitted to have them
// (bench/fit/h200/tiles.json): a deeper ring changes what a tile costs, so fit it anew.
/// Of both rings where each slab comes with a box of its own.
constexpr int most_together = 8;
/// Of weights: a slab is loaded while the others' math runs, which covers several loads' time.
constexpr int most_slabs = 10;
/// Of pixels beside weights that stay: no slab competes for the room.
constexpr int most_resident_boxes = 6;
/// Of pixels beyond the fewest, where weights leave room: a box lasts all its taps.
constexpr int most_spare_boxes = 4;
/// Slabs that stay. Each slot of a ring has two barriers of 8 bytes, each warpgroup one for its
/// turn.
constexpr int most_resident_slabs = 48;
static_assert(8 * (2 * (most_resident_slabs + most_resident_boxes) + 2) <= barrier_bytes,
              "barriers of resident weights and their boxes must fit into their space");
/// A CTA asks for so many bytes of weights before its first pixels where its launch cannot lie
/// beside the one before: they come by the time that the pixels may be read.
constexpr int early_bytes = 80 << 10;
/// A slab of a CTA's only tile, there: the math begins with the first of them.
constexpr int first_slab_bytes = 48 << 10;

/// Bytes that slabs of a filter row need: three of them beside two boxes; beside three where one
/// slab is all that reads a box.
int row_needs(const HaloCase& c, const HaloLayout& out) {
  return (c.stage.r > 1 ? 2 : 3) * round_up(out.box_bytes, swizzle_bytes) +
         3 * c.row_taps() * c.tap_bytes();
}

/// Puts all boxes of `tile.deep` chunks into a slot: the table of taps then runs over all of them,
/// and a slab of weights over as many of the taps as leaves their ring deep enough.
void deepen(const HaloCase& c, HaloLayout& out) {
  const int deep = c.tile.deep, room = c.room() - 2 * out.staging, tap_bytes = c.tap_bytes();
  out.slot_chunks = deep;
  out.slot_boxes = out.boxes;
  // The same box of all chunks: one after the other, as one load brings them.
  if (out.chunk_channels == 0) out.load_chunks = deep, out.x_box = out.box_bytes;
  for (int v = 0; v < out.boxes; ++v) {
    const TapBox& box = out.box[v];
    for (int t = box.first; t < box.first + box.count; ++t)
      out.tap_shift[t] += static_cast<std::uint16_t>(v * deep * out.x_box / 16);
  }
  for (int t = out.taps; t < out.slot_taps(); ++t)
    out.tap_shift[t] = static_cast<std::uint16_t>(out.tap_shift[t - out.taps] + out.x_box / 16);
  out.x_slot = round_up(deep * out.boxes * out.x_box, swizzle_bytes);
  // All of a slot's taps where three such slots and slabs fit; else the most, short of all, that
  // leave room for four slabs beside two slots.
  out.slab_taps = out.slot_taps();
  if (room / (out.x_slot + out.slot_taps() * tap_bytes) >= 3) return;
  const auto slabs = [&](int taps) { return (room - 2 * out.x_slot) / (taps * tap_bytes); };
  while (out.slab_taps > 1 && (out.slot_taps() % out.slab_taps != 0 || slabs(out.slab_taps) < 4 ||
                               out.slab_taps == out.slot_taps()))
    --out.slab_taps;
}

/// How many taps a slab of weights has, and whether a slot is deep. False: the tile is another
/// one's double.
bool lay_slabs(const HaloCase& c, HaloLayout& out) {
  const HaloTile& tile = c.tile;
  if (tile.deep > 0) {
    if (tile.deep == 1 && out.boxes == 1) return false;  // the same as no depth
    deepen(c, out);
    out.tap_shift[0] |= opens_slot;
    return true;
  }
  // A tap of a single tile takes less time than a producer does to fill a slot (halo_load.cuh), a
  // whole filter row more: in ping-pong, and where weights are resident, a slab is a row. Two
  // warpgroups at once need a slab half as often: single taps give their ring more depth.
  const bool one_box = out.boxes == 1 && out.taps == c.stage.r * c.stage.s;
  const bool row_fits = c.room() - 2 * out.staging >= row_needs(c, out);
  const bool by_row = c.small() || tile.resident || (out.pingpong && row_fits);
  out.slab_taps = one_box && by_row ? c.row_taps() : 1;
  for (const TapBox& box : boxes_of(out)) out.tap_shift[box.first] |= opens_slot;
  return true;
}

/// Whether a tile without a pool leaves in pieces of an instruction, or of its size, which may take
/// turns in two buffers.
bool in_pieces(const HaloCase& c) {
  return !c.pooled() && (gives_sums(c.stage) || store_pieces(c.tile.instruction_n()) > 1);
}

/// Where a CTA has a single tile whose boxes and weights fit into its shared memory, the rings hold
/// them all: nothing waits for a slot, and slabs are large, so that what lies between two of them
/// shows less often. Whether they do.
bool hold_tile(const HaloCase& c, HaloLayout& out) {
  // With another stage inside, tiles overlap: there it is for the only tile of all.
  if ((c.inside.alone ? out.grid : 1) != out.tiles() || halo_turns(c.stage, c.tile) > 1 ||
      (c.tile.deep == 0 && out.boxes > 1))
    return false;
  const int tap_bytes = c.tap_bytes(), rings = c.room(),
            slot_taps = c.tile.deep > 0 ? out.slot_taps() : out.taps;
  const Index slots = out.slots_a_tile(),
              held = slots * out.x_slot + Index{out.chunks} * out.taps * tap_bytes;
  // Where launches lie beside each other, weights come under the math of the one before; else the
  // math begins with the first of them.
  const bool beside = !out.crowded && c.inside.alone;
  int slab_taps = std::clamp((beside ? rings : first_slab_bytes) / tap_bytes, 1, slot_taps);
  while (slot_taps % slab_taps != 0) --slab_taps;
  const Index slabs = slots * slot_taps / slab_taps;
  if (2 * out.staging + held > rings || 8 * (2 * slots + 2 * slabs + 2) > barrier_bytes)
    return false;
  out.slab_taps = slab_taps;
  out.w_slot = slab_taps * tap_bytes;
  out.x_slots = static_cast<int>(slots);
  out.w_slots = static_cast<int>(slabs);
  out.store_buffers = in_pieces(c) && 4 * out.staging + held <= rings ? 2 : 1;
  return true;
}

/// The fewest slots for pixels. A warpgroup releases a slot one slab late. If a slot has a single
/// slab, three slots are in use: the last one, the current one and the next.
int fewest_boxes(const HaloCase& c, const HaloLayout& out) {
  if (c.tile.deep > 0) return out.slab_taps == out.slot_taps() ? 3 : 2;
  for (const TapBox& box : boxes_of(out))
    if (box.count == out.slab_taps) return 3;
  return 2;
}

/// How many slots the rings have. False: too few fit.
bool choose_slots(const HaloCase& c, HaloLayout& out) {
  const HaloTile& tile = c.tile;
  out.w_slot = c.tap_bytes() * out.slab_taps;
  const bool room_for_two =
      out.slab_taps == 1 || tile.resident || c.room() - 4 * out.staging >= row_needs(c, out);
  out.store_buffers = in_pieces(c) && room_for_two ? 2 : 1;
  const int room = c.room() - 2 * out.store_buffers * out.staging, all_slabs = out.slabs_a_tile();
  const int boxes = fewest_boxes(c, out);
  if (tile.resident) {
    if (all_slabs > most_resident_slabs) return false;
    out.w_slots = all_slabs;
    out.x_slots = std::min(most_resident_boxes, (room - all_slabs * out.w_slot) / out.x_slot);
    return out.x_slots >= boxes;
  }
  constexpr int slabs = 3;  // two in use, one to come
  const bool slab_a_box = tile.deep > 0 ? boxes == 3 : out.taps / out.boxes < 2;
  if (slab_a_box) {
    out.x_slots = out.w_slots = std::min(most_together, room / (out.x_slot + out.w_slot));
  } else {
    // Few boxes hide the load of one behind the taps of the other; weights need the depth: three
    // slabs of a filter row, or six of a tap.
    out.x_slots = boxes;
    const int spare = room - (boxes + 1) * out.x_slot - (out.slab_taps > 1 ? 3 : 6) * out.w_slot;
    if (spare >= 0) out.x_slots += std::min(most_spare_boxes, 1 + spare / out.x_slot);
    out.w_slots = std::min(most_slabs, (room - out.x_slots * out.x_slot) / out.w_slot);
  }
  return out.x_slots >= boxes && out.w_slots >= slabs;
}

/// Both warpgroups walk over a tile's boxes one after the other: all of them must be there, and one
/// more for what comes next. Weights stream, a filter row at a time: a tap does not cover what lies
/// between two slabs. False: they do not fit.
bool share_boxes(const HaloCase& c, HaloLayout& out) {
  if (c.tile.resident) return false;
  if (out.boxes == 1 && out.taps == c.stage.r * c.stage.s) out.slab_taps = c.row_taps();
  out.w_slot = c.tap_bytes() * out.slab_taps;
  out.x_slots = out.chunks * out.boxes + 1;
  const Index room = c.room() - 2 * out.staging - Index{out.x_slots} * out.x_slot;
  out.w_slots = static_cast<int>(std::min<Index>(most_slabs, room / out.w_slot));
  return room >= 3 * out.w_slot;
}

/// Pixels queue behind the weights that were asked for before them. Where a launch cannot lie
/// beside the one before, only so much is as comes by the time that they may be read; but never so
/// little that the first box could be given back before the producers of weights have looked at its
/// slot.
void limit_early_slabs(const HaloCase& c, HaloLayout& out) {
  if (!out.crowded || !c.inside.alone) return;
  const int taps = c.tile.deep > 0 ? out.slot_taps() : out.box[0].count;
  const int slabs = std::max(1, early_bytes / out.w_slot);
  if (slabs + 1 < taps / out.slab_taps) out.early_slabs = slabs;
}

/// Where what begins, and how ping-pong passes the slots of the other warpgroup's tile.
void lay_offsets(HaloLayout& out) {
  out.x_bytes = out.box_bytes * out.slot_chunks * out.slot_boxes;
  const int tile_x = out.slots_a_tile(), tile_w = out.slabs_a_tile();
  if (out.sharers == 1) {  // else both walk over every box
    out.skip_x = tile_x % out.x_slots;
    out.skip_x_odd = tile_x / out.x_slots & 1;
  }
  out.x_passes = out.pingpong && out.x_slots % 2 == 1;
  out.w_passes = out.pingpong && out.w_slots % 2 == 1;
  out.skip_w = tile_w % out.w_slots;
  out.skip_w_odd = tile_w / out.w_slots & 1;
  out.w_offset = out.x_slots * out.x_slot;
  out.staging_offset = out.w_offset + out.w_slots * out.w_slot;
  out.barrier_offset = out.staging_offset + 2 * out.store_buffers * out.staging;
  out.shared_bytes = swizzle_bytes + out.end();  // the first to align what follows
}

}  // namespace

bool lay_rings(const HaloCase& c, HaloLayout& out) {
  return lay_slabs(c, out) && (hold_tile(c, out) || choose_slots(c, out));
}

bool finish_rings(const HaloCase& c, HaloLayout& out) {
  if (out.sharers > 1 && !share_boxes(c, out)) return false;
  limit_early_slabs(c, out);
  lay_offsets(out);
  return true;
}

}  // namespace convoy::cuda::sm90
