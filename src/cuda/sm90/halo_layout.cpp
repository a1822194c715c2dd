// How a tile of the halo family lies in shared memory. In steps: is it a candidate at all; storage
// (the walk, boxes of pixels, the staged output); then the pipeline (halo_rings.cpp).
#include "cuda/sm90/halo_layout.hpp"

#include <algorithm>
#include <span>

#include "cuda/sm90/halo_case.hpp"

namespace convoy::cuda::sm90 {
namespace {

// ---------------------------------------------------------------------------------- candidates

bool compiled(const Stage& stage, const HaloTile& tile) {
  const Accumulator wanted{tile.instruction_n(), tile.instructions()};
  const auto among = [&](const auto& all) {
    return std::find(all.begin(), all.end(), wanted) != all.end();
  };
  if (tile.time_steps > 1) return !tile.half && among(accumulators_of(tile.time_steps));
  if (stage.act.is_neuron()) return !tile.half && among(neuron_accumulators);
  if (gives_sums(stage)) return !tile.half && among(sums_accumulators);
  if (tile.half && (!serves_half(wanted) || tile.schedule != Schedule::pingpong || tile.resident))
    return false;
  return among(accumulators);
}

bool candidate(const HaloCase& c) {
  const HaloTile& tile = c.tile;
  if (!compiled(c.stage, tile)) return false;
  if (tile.time_steps > 1 && tile.time_steps != halo_time_steps(c.stage)) return false;
  // A window must lie in one thread's accumulators.
  if (c.pooled() && (tile.bw % 2 != 0 || tile.bh % 2 != 0)) return false;
  switch (tile.inner) {
    case Inner::images:  // a group of eight columns is eight images
      if (tile.bn != 8) return false;
      break;
    case Inner::pixels:  // an instruction's rows are eight pixels: wider is two of them, side by
                         // side
      if (tile.bw > 8 && (tile.bw != 16 || tile.bn != 1)) return false;
      break;
    case Inner::line:
      if (!pointwise(c.stage) || tile.bh != 1 || tile.bn != 1) return false;
      break;
    case Inner::brick: {
      if (c.pooled() || tile.deep > 0) return false;
      const int pieces = store_pieces(tile.instruction_n(), gives_sums(c.stage));
      if (c.stage.act.is_neuron()) {
        // The steps of a pixel and eight images are the groups of columns that follow each other.
        if (tile.time_steps == 1 || tile.bn != 8) return false;
      } else if (tile.bn % 8 != 0 || tile.bn > 32) {
        return false;
      }
      if (tile.bh % pieces != 0 && (tile.bh > 1 || tile.bw % pieces != 0)) return false;
      break;
    }
  }
  if (tile.deep == 0) return true;
  // A deep slot is worth the wait for all its boxes only where a tap's math is short.
  return c.small() && !tile.resident && ceil_div(c.stage.c, row_channels) % tile.deep == 0 &&
         tile.deep * c.stage.r * c.stage.s <= max_taps;
}

// ---------------------------------------------------------------------------------- storage

/// A CTA's tile, how many of them there are, and CTAs to walk over them.
void lay_walk(const HaloCase& c, HaloLayout& out) {
  const auto& [stage, tile, device, inside] = c;
  const Shapes& shapes = out.shapes;
  const bool line = tile.inner == Inner::line;
  out.cta_channels = tile.cta_channels();
  out.cta_w = tile.cta_columns();
  out.cta_h = tile.cta_rows();
  out.cta_n = tile.bn;
  out.k_blocks = ceil_div(stage.k, out.cta_channels);
  // A neuron has membranes below no window, too.
  const bool all = stage.act.is_neuron();
  const Index width = all ? shapes.q : shapes.out_w * c.window(),
              height = all ? shapes.p : shapes.out_h * c.window();
  out.tiles_x = ceil_div(line ? stage.n * stage.h * stage.w : width, out.cta_w);
  out.tiles_y = line ? 1 : ceil_div(height, out.cta_h);
  out.tiles_n = line ? 1 : ceil_div(stage.n, out.cta_n);
  out.sharers = inside.sharers;
  out.grid = static_cast<int>(std::min<Index>(device.sms, out.tiles() / out.sharers));
  // A CTA with resident weights keeps its channel block: tile % k_blocks must not change as it
  // walks.
  if (tile.resident) out.grid = std::max(out.k_blocks, out.grid / out.k_blocks * out.k_blocks);
  out.crowded = 2 * out.grid > device.sms;

  out.images = tile.images_first();
  out.pingpong = tile.schedule == Schedule::pingpong;
  out.resident = tile.resident;
  out.half = tile.half;
  if (tile.schedule == Schedule::channels) out.warpgroup_channels = row_channels;
  if (tile.schedule == Schedule::rows) {
    out.warpgroup_columns = line ? tile.bw : 0;
    out.warpgroup_rows = line ? 0 : tile.bh;
  }

  out.step_w = static_cast<int>(stage.stride.w);
  out.step_h = static_cast<int>(stage.stride.h);
  out.first_w = -static_cast<int>(stage.pad.left);
  out.first_h = -static_cast<int>(stage.pad.top);
  out.window = c.window();
  out.time_steps = static_cast<std::uint8_t>(tile.time_steps);
  out.chunks = ceil_div(stage.c, row_channels);
  // A map has five axes: no chunks beside the time steps.
  out.chunk_channels = whole_chunks(stage) && tile.time_steps == 1 ? 0 : row_channels;
}

/// A box of pixels and how the taps and instructions walk in it. False: none that TMA can bring, or
/// that fits at all.
bool lay_box(const HaloCase& c, HaloLayout& out) {
  const HaloTile& tile = c.tile;
  out.box_w += out.cta_w;  // to what the taps reach over
  out.box_h += out.cta_h;
  out.box_n = out.cta_n;
  const auto spans = [](int box, Index step) { return (box - 1) * step + 1; };
  const Index bytes = Index{out.box_w} * out.box_h * out.box_n * out.time_steps * row_bytes;
  if (spans(out.box_w, out.step_w) > most_box || spans(out.box_h, out.step_h) > most_box ||
      bytes > c.room())
    return false;
  out.box_bytes = static_cast<int>(bytes);
  out.x_box = out.x_slot = round_up(out.box_bytes, swizzle_bytes);

  // Bytes from a pixel to its right neighbour, and to the one below; a line is groups of eight.
  // The time steps lie between the images and the columns, or between the columns and the rows.
  const int pixel = out.images ? tile.bn * out.time_steps * row_bytes : row_bytes;
  const int line = out.box_w * pixel;
  const int row = tile.inner == Inner::line ? 8 * pixel : out.images ? line : line * out.time_steps;
  for (std::uint16_t& shift : std::span(out.tap_shift).first(static_cast<std::size_t>(out.taps)))
    shift = static_cast<std::uint16_t>(((shift >> 8) * row + (shift & 255) * pixel) / 16);
  out.group_stride = out.images ? 8 * row_bytes : tile.inner == Inner::line ? row : line;
  out.instruction_stride = out.images ? row : (tile.bw > 8 ? 8 * row_bytes : row * out.box_h);
  out.warpgroup_stride = out.warpgroup_columns * pixel + out.warpgroup_rows * row;
  return true;
}

/// The staged output: whole tiles where a pool makes them small, else parts of an instruction's
/// pixels (store_pieces).
void lay_output(const HaloCase& c, HaloLayout& out) {
  const HaloTile& tile = c.tile;
  const int w = tile.bw / out.window, h = tile.bh / out.window,
            pieces = store_pieces(tile.instruction_n(), gives_sums(c.stage));
  out.stored_pixels =
      c.pooled() ? w * h * tile.bn * tile.time_steps : tile.instruction_n() / pieces;
  out.store_j = out.images ? 8 : w;
  out.store_i = out.images ? 8 * w : (tile.bw > 8 ? 8 / out.window : w * h * tile.time_steps);
  // Behind a pooled tile one row more takes columns that do not exist (Fragments::row).
  const int rows = out.stored_pixels + (c.pooled() ? 1 : 0);
  const int pixel_bytes = gives_sums(c.stage) ? 2 * row_bytes : row_bytes;
  out.staging =
      c.inside.staging > 0 ? c.inside.staging : round_up(rows * pixel_bytes, swizzle_bytes);
  if (c.pooled()) return;
  const bool pixels = tile.inner == Inner::pixels;
  const bool rows_apart = pixels || (tile.inner == Inner::brick && tile.bh % pieces == 0);
  out.part_y = out.images ? 1 : 0;
  out.part_x = pixels && tile.bw > 8 ? 8 : 0;
  out.part_n = !out.images && tile.bn > 1 ? 1 : 0;
  out.piece_x = rows_apart ? 0 : tile.bw / pieces;
  out.piece_y = rows_apart ? tile.bh / pieces : 0;
}

/// Storage and pipeline. `out`: shapes and taps. False: not with these boxes.
bool lay(const HaloCase& c, HaloLayout& out) {
  lay_walk(c, out);
  if (!lay_box(c, out)) return false;
  lay_output(c, out);
  return lay_rings(c, out);
}

}  // namespace

HaloLayouts::HaloLayouts(const Stage& stage, const DeviceFacts& device, const HaloInside& inside)
    : stage_(stage), device_(device), inside_(inside) {
  begun_.shapes = shapes_of(stage);
  lay_taps(stage, false, begun_);
}

bool HaloLayouts::may_serve(const HaloTile& tile) const {
  return candidate({stage_, tile, device_, inside_});
}

HaloLayout HaloLayouts::of(const HaloTile& tile) {
  const HaloCase c{stage_, tile, device_, inside_};
  HaloLayout out = begun_;
  if (tile.inner == Inner::brick || !lay(c, out)) {
    if (tile.deep > 0) return {};
    if (!apart_) {
      apart_.emplace().shapes = begun_.shapes;
      lay_taps(stage_, true, *apart_);
    }
    out = *apart_;
    if (!lay(c, out)) return {};
  }
  if (!finish_rings(c, out)) return {};
  return out;
}

HaloLayout halo_layout(const Stage& stage, const HaloTile& tile, const DeviceFacts& device,
                       const HaloInside& inside) {
  HaloLayouts layouts(stage, device, inside);
  return layouts.may_serve(tile) ? layouts.of(tile) : HaloLayout();
}

}  // namespace convoy::cuda::sm90
