#include "inspect/kernel_map/halo_map.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "cuda/known_gpus.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

namespace {

constexpr int consumers = 256, cta_threads = 384;

int as_int(Index value) {
  return static_cast<int>(value);
}

}  // namespace

HaloMap::HaloMap(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                 const std::string& machine)
    : KernelMap(stage, gives_sums(stage) ? "halo_sums" : "halo", tile.name(), machine),
      tile_of_(tile),
      l_(layout),
      by_k_(layout.k_blocks),
      by_x_(halo_across(layout)),
      by_y_(layout.tiles_y),
      places_(halo_places_of(stage, tile, layout, stage.n)),
      grid_(halo_grid_of(layout, places_)),
      tiles_(halo_tiles_of(stage, tile, layout, stage.n)),
      turns_(as_int(halo_turns(stage, tile))),
      by_grid_(grid_),
      by_turns_(turns_) {}

std::vector<MapFact> HaloMap::facts() const {
  std::vector<MapFact> all;
  const auto add = [&](const char* name, std::string value, std::string note) {
    all.push_back({name, std::move(value), std::move(note)});
  };
  const HaloTile& t = tile_of_;
  add("tile",
      line() ? fmt::format("{} channels x {} pixels in a line", l_.cta_channels, l_.cta_w)
             : fmt::format("{} channels x {} x {} x {}", l_.cta_channels, l_.cta_n, l_.cta_h,
                           l_.cta_w),
      line() ? "per CTA; a line is the pixels of all images in sequence"
             : "per CTA: channels (GEMM's M) x images, rows, columns before the pool");
  add("tiles", fmt::format("{} x {} x {} x {}", l_.k_blocks, l_.tiles_x, l_.tiles_y, l_.tiles_n),
      fmt::format("blocks of channels (fastest), along the columns, the rows, the images: {}",
                  places_));
  add("grid", fmt::format("{}", grid_),
      fmt::format("CTAs, one a multiprocessor; each walks over up to {} tiles",
                  (tiles_ + grid_ - 1) / grid_));
  add("CTA", "384 threads",
      fmt::format("2 warpgroups that multiply, {}; 4 producers: 2 of pixels, 2 of weights",
                  t.schedule == Schedule::channels ? "64 channels of the tile each"
                  : t.schedule == Schedule::rows   ? "half of the tile's pixels each"
                                                   : "tiles in turn (ping-pong)"));
  add("instruction", fmt::format("m64n{}k16", t.instruction_n()),
      fmt::format("wgmma, {} for a warpgroup's pixels, {} k16 steps a tap of 64 channels",
                  t.instructions(), halo_steps(stage(), t)));
  add("boxes",
      fmt::format("{} of {} x {} x {} pixels{}", l_.boxes, l_.box_n, l_.box_h, l_.box_w,
                  l_.time_steps > 1 ? fmt::format(" in {} time steps", l_.time_steps) : ""),
      l_.boxes == 1
          ? fmt::format("images, rows, columns: the tile with its halo; all {} taps read it "
                        "at shifted places",
                        l_.taps)
          : fmt::format("images, rows, columns: {} taps between them", l_.taps));
  add("iterations", fmt::format("{}", l_.slabs_a_tile()),
      fmt::format("slabs of {} {}: {} chunks of 64 channels x {} taps", l_.slab_taps,
                  l_.slab_taps == 1 ? "tap" : "taps", l_.chunks, l_.taps));
  add("slots", fmt::format("{} + {}", l_.x_slots, l_.w_slots),
      fmt::format("of pixels, {} bytes each ({} loads a tile); of weights, {} bytes each ({} "
                  "loads a tile{})",
                  l_.x_slot, l_.slots_a_tile(), l_.w_slot, l_.slabs_a_tile(),
                  l_.resident ? ", which stay for all tiles" : ""));
  add("shared memory", fmt::format("{} bytes", l_.shared_bytes), "of a CTA");
  add("accumulators", fmt::format("{}", t.instruction_n() * t.instructions() / 2),
      fmt::format("registers of a consumer's thread: d[{}][{}]", t.instructions(),
                  t.instruction_n() / 2));
  if (neuron())
    for (MapFact& fact : neuron_facts()) all.push_back(std::move(fact));
  return all;
}

std::string HaloMap::order() const {
  std::string text = fmt::format(
      "no swizzle: {} blocks of channels of one place follow each other, so that CTAs at work "
      "together read the same pixels; ",
      l_.k_blocks);
  if (turns_ == 1) return text + fmt::format("CTA b takes tiles b, b + {}, ...", grid_);
  return text + "a CTA takes a place's time steps one after the other";
}

TilePlace HaloMap::tile_of_number(int number) const {
  const Turn turn = turn_of(number, by_grid_, by_turns_, l_.pingpong);
  TilePlace tile;
  tile.x = turn.place / l_.k_blocks, tile.y = turn.place % l_.k_blocks;
  tile.cta = number % grid_, tile.turn = number / grid_;
  tile.t = turn.turn * l_.time_steps;
  return tile;
}
// turn_of's way back.
TilePlace HaloMap::tile_of_place(int place, Index t) const {
  const int both = l_.pingpong ? 1 : 0, walked = place / grid_;
  const int turn = ((walked >> both) * turns_ + as_int(t) / l_.time_steps) << both;
  TilePlace tile = tile_of_number((turn + (walked & both)) * grid_ + place % grid_);
  tile.t = t;
  return tile;
}
Place HaloMap::place(const TilePlace& tile) const {
  return halo_place(l_, by_k_, by_x_, by_y_, as_int(tile.x) * l_.k_blocks + as_int(tile.y));
}

std::vector<TilePlace> HaloMap::first_tiles(int count) const {
  std::vector<TilePlace> all;
  for (int number = 0; number < tiles_ && static_cast<int>(all.size()) < count; ++number) {
    const TilePlace tile = tile_of_number(number);
    // The last ones of some CTAs may lie behind the last place: they are computed, and clipped.
    if (tile.x * l_.k_blocks + tile.y < places_) all.push_back(tile);
  }
  return all;
}

TilePlace HaloMap::tile_at(Index x, Index y) const {
  const int pixels = places_ / l_.k_blocks;
  if (y < 0) {
    if (x < 0 || x >= grid_)
      throw Error(fmt::format("explain: --block {}: the launch has CTAs 0 to {}", x, grid_ - 1));
    return tile_of_number(as_int(x));
  }
  if (x < 0 || x >= pixels || y >= l_.k_blocks)
    throw Error(fmt::format(
        "explain: --block {},{}: there are {} x {} tiles (of pixels, of channels), numbered from 0",
        x, y, pixels, l_.k_blocks));
  return tile_of_place(as_int(x) * l_.k_blocks + as_int(y), 0);
}

HaloMap::Column HaloMap::column_of(const InTile& at) const {
  switch (tile_of_.inner) {
    case Inner::line:
      return {0, at.x};
    case Inner::images:
      return {at.y, 8 * at.x + at.n};
    case Inner::brick:
      return {0, ((at.y * tile_of_.bw + at.x) * l_.time_steps + at.t) * tile_of_.bn + at.n};
    case Inner::pixels:
      break;
  }
  return {tile_of_.bw > 8 ? at.x / 8 : at.n, 8 * (at.y * l_.time_steps + at.t) + at.x % 8};
}
HaloMap::InTile HaloMap::pixel_of(const Column& at) const {
  const int group = at.column / 8, inner = at.column % 8;
  switch (tile_of_.inner) {
    case Inner::line:
      return {at.column, 0, 0, 0};
    case Inner::images:
      return {group, at.instruction, inner, 0};
    case Inner::brick: {
      const int pixel = at.column / tile_of_.bn / l_.time_steps;
      return {pixel % tile_of_.bw, pixel / tile_of_.bw, at.column % tile_of_.bn,
              at.column / tile_of_.bn % l_.time_steps};
    }
    case Inner::pixels:
      break;
  }
  const int row = group / l_.time_steps, step = group % l_.time_steps;
  if (tile_of_.bw > 8) return {inner + 8 * at.instruction, row, 0, step};
  return {inner, row, at.instruction, step};
}

int HaloMap::warpgroup_of(const TilePlace& tile, int channel, const InTile& pixel) const {
  switch (tile_of_.schedule) {
    case Schedule::channels:
      return channel / row_channels;
    case Schedule::rows:
      return line() ? pixel.x / tile_of_.bw : pixel.y / tile_of_.bh;
    case Schedule::pingpong:
      break;
  }
  return as_int(tile.turn % 2);
}

int HaloMap::row_byte(int warpgroup, int tap, const Column& at) const {
  return warpgroup * l_.warpgroup_stride + (l_.tap_shift[tap] & ~opens_slot) * 16 +
         at.instruction * l_.instruction_stride + at.column / 8 * l_.group_stride +
         at.column % 8 * row_bytes;
}

Accumulator HaloMap::accumulator(const OutputIndex& output) const {
  expect_output(stage(), output);
  InTile at;
  int pixels = 0;
  if (line()) {
    const Index pixel = (output.n * stage().h + output.p) * stage().w + output.q;
    pixels = as_int(pixel / l_.cta_w);
    at = {as_int(pixel % l_.cta_w), 0, 0, 0};
  } else {
    const int x = as_int(output.q) / l_.cta_w, y = as_int(output.p) / l_.cta_h,
              n = as_int(output.n) / l_.cta_n;
    if (x >= l_.tiles_x || y >= l_.tiles_y)
      throw Error(fmt::format(
          "explain: the pool takes no window of (p {}, q {}), and no tile in the kernel has it",
          output.p, output.q));
    pixels = (n * l_.tiles_y + y) * l_.tiles_x + x;
    at = {as_int(output.q) % l_.cta_w, as_int(output.p) % l_.cta_h, as_int(output.n) % l_.cta_n, 0};
  }
  Accumulator a;
  a.tile = tile_at(pixels, output.k / l_.cta_channels);
  const int channel = as_int(output.k) % l_.cta_channels;
  const int g = warpgroup_of(a.tile, channel, at);
  if (tile_of_.schedule == Schedule::rows)
    (line() ? at.x : at.y) -= g * (line() ? tile_of_.bw : tile_of_.bh);
  const Column c = column_of(at);
  const int in_64 = channel % row_channels;
  a.row = c.instruction * tile_of_.instruction_n() + c.column;
  a.column = channel;
  a.warp = 4 * g + in_64 / 16;
  a.lane = in_64 % 8 * 4 + c.column % 8 / 2;
  a.thread = 32 * a.warp + a.lane;
  const int reg = c.column / 8 * 4 + in_64 / 8 % 2 * 2 + c.column % 2;
  a.number = c.instruction * (tile_of_.instruction_n() / 2) + reg;
  a.name = fmt::format("d[{}][{}]", c.instruction, reg);
  a.stored = stored_text(g);
  return a;
}

std::optional<OutputIndex> HaloMap::output_of(const TilePlace& tile, int thread, int number) const {
  if (thread < 0 || thread >= cta_threads)
    throw Error(fmt::format("explain: --thread {}: a CTA of halo has threads 0 to {}", thread,
                            cta_threads - 1));
  if (thread >= consumers)
    throw Error(fmt::format(
        "explain: thread {} is a producer and has no accumulators: threads 0 to {} have", thread,
        consumers - 1));
  const int of_instruction = tile_of_.instruction_n() / 2;
  if (number < 0 || number >= of_instruction * tile_of_.instructions())
    throw Error(fmt::format("explain: register {}: a thread has accumulators 0 to {}", number,
                            of_instruction * tile_of_.instructions() - 1));
  const int g = thread / 128, lane = thread % 32, reg = number % of_instruction;
  if (l_.pingpong && g != tile.turn % 2) return std::nullopt;  // the other warpgroup's tile
  InTile at = pixel_of({number / of_instruction, reg / 4 * 8 + lane % 4 * 2 + reg % 2});
  if (at.t != tile.t % l_.time_steps) return std::nullopt;  // of another step
  const Place from = place(tile);
  at.x += from.x + g * l_.warpgroup_columns;
  at.y += from.y + g * l_.warpgroup_rows;
  at.n += from.n;
  const int in_64 = halo_channel(lane, thread / 32 % 4) + reg / 2 % 2 * 8;
  if (tile_of_.half && in_64 >= block_channels / 2) return std::nullopt;  // thrown away
  const Index k = from.k + g * l_.warpgroup_channels + in_64;
  if (k >= stage().k) return std::nullopt;
  const Shapes shapes = shapes_of(stage());
  if (line()) {
    const Index image = stage().h * stage().w;
    if (at.x >= stage().n * image) return std::nullopt;
    return OutputIndex{at.x / image, at.x % image / stage().w, at.x % stage().w, k};
  }
  // Pixels that the pool takes no window of are computed beside those of the last one; a neuron has
  // membranes there, too.
  const Index high = neuron() ? shapes.p : shapes.out_h * l_.window,
              wide = neuron() ? shapes.q : shapes.out_w * l_.window;
  if (at.n >= stage().n || at.y >= high || at.x >= wide) return std::nullopt;
  return OutputIndex{at.n, at.y, at.x, k};
}

Index HaloMap::load_of_step(Index step) const {
  const Index tap = step * l_.slab_taps;  // of the tile
  if (l_.slot_boxes == l_.boxes) return tap / l_.slot_taps();
  const int in_chunk = as_int(tap % l_.taps);
  int box = 0;
  while (in_chunk >= l_.box[box].first + l_.box[box].count) ++box;
  return tap / l_.taps * l_.boxes + box;
}
int HaloMap::slot_of_step(Index step) const {
  return as_int(load_of_step(step) % l_.x_slots);
}

std::string HaloMap::tap_text(int tap) const {
  const int index = l_.tap_index[static_cast<std::size_t>(tap % l_.taps)];
  return fmt::format("({},{})", index / stage().s, index % stage().s);
}

OperandPlace HaloMap::operand(const OutputIndex& output, const TapIndex& tap) const {
  const Accumulator a = accumulator(output);
  const int chunk = as_int(tap.c / row_channels), index = as_int(tap.r * stage().s + tap.s);
  int t = 0;
  while (l_.tap_index[static_cast<std::size_t>(t)] != index) ++t;
  const int g = a.warp / 4;
  const Column c{a.row / tile_of_.instruction_n(), a.row % tile_of_.instruction_n()};
  OperandPlace place;
  place.step = (Index{chunk} * l_.taps + t) / l_.slab_taps;
  place.slot = slot_of_step(place.step);
  const int in_table = chunk % l_.slot_chunks * l_.taps + t;
  const int byte = as_int(tap.c % row_channels) * value_bytes;
  place.in_slot = swizzled128(row_byte(g, in_table, c) + byte);
  place.in_shared = Index{place.slot} * l_.x_slot + place.in_slot;
  const Index load = load_of_step(place.step);
  place.brought =
      fmt::format("TMA, load {} of the tile, asked for by producer {} of pixels", load, load % 2);
  place.read = fmt::format(
      "wgmma of warpgroup {}, column {} of its instruction {}: descriptor {} bytes into the slot "
      "(tap {} at shift {}), k16 step {}",
      g, c.column, c.instruction, row_byte(g, in_table, {c.instruction, 0}) + byte / 32 * 32,
      tap_text(t), (l_.tap_shift[in_table] & ~opens_slot) * 16, byte / 32);
  return place;
}

InputElement HaloMap::in_box(const Box& from, int row, int channel) const {
  const Stage& s = stage();
  const Index images = s.n * halo_inputs(s);  // of all time steps
  InputElement x;
  x.bytes = value_bytes;
  x.c = from.c0 + (l_.time_steps > 1 ? 0 : Index{from.c4} * row_channels) + channel;
  if (line()) {
    const Index pixel = Index{from.c1} + row, image = s.h * s.w;
    x.n = pixel / image, x.h = pixel % image / s.w, x.w = pixel % s.w;
    x.inside = pixel < images * image && x.c < s.c;
  } else {
    // Axis 1 of the map is fastest; a stride takes every so many-th column and row. Time steps are
    // axis 2, or all of theirs are images.
    const bool timed = l_.time_steps > 1;
    const int first = l_.images ? l_.box_n : l_.box_w, second = l_.images ? l_.box_w : l_.box_h;
    const int a = row % first, step = row / first % l_.time_steps,
              rest = row / first / l_.time_steps;
    const int b = rest % second, c = rest / second;
    const int from_b = timed ? from.c3 : from.c2, from_c = timed ? from.c4 : from.c3;
    const int in_x = l_.images ? b : a, in_y = l_.images ? c : b, in_n = l_.images ? a : c;
    x.n = (l_.images ? from.c1 : from_c) + in_n;
    x.w = (l_.images ? from_b : from.c1) + Index{in_x} * l_.step_w;
    x.h = (l_.images ? from_c : from_b) + Index{in_y} * l_.step_h;
    x.inside =
        x.n < (timed ? s.n : images) && x.h >= 0 && x.h < s.h && x.w >= 0 && x.w < s.w && x.c < s.c;
    if (timed) x.n += s.n * (from.c2 + step);
  }
  if (x.inside) x.byte = (((x.n * s.h + x.h) * s.w + x.w) * s.c + x.c) * value_bytes;
  return x;
}

HaloMap::SlotLoads HaloMap::loads_of(const TilePlace& tile, Index load) const {
  const int groups = l_.boxes / l_.slot_boxes;
  SlotLoads all;
  all.first_chunk = as_int(load / groups) * l_.slot_chunks;
  all.first_box = as_int(load % groups) * l_.slot_boxes;
  const struct {
    const HaloLayout& at;
    int step_n, step_x;
  } params{l_, line() ? 0 : as_int(stage().n),
           line() ? as_int(stage().n * stage().h * stage().w) : 0};
  const NeuronPlace at{place(tile), as_int(tile.t) / l_.time_steps * l_.time_steps};
  each_box(params, at, all.first_chunk, all.first_box, [&](int c0, int c1, int c2, int c3, int c4) {
    all.boxes.push_back({c0, c1, c2, c3, c4});
  });
  return all;
}

InputElement HaloMap::in_slot(const TilePlace& tile, Index step, int byte) const {
  const int logical = swizzled128(byte);
  // As the producer fills the slot: one load after the other.
  int to = 0;
  for (Box from : loads_of(tile, load_of_step(step)).boxes) {
    const int in_load = logical - to, brought = l_.box_bytes * l_.load_chunks;
    if (in_load >= 0 && in_load < brought) {
      from.c4 += in_load / l_.box_bytes;  // a load of several chunks brings them in turn
      const int in_one = in_load % l_.box_bytes;
      return in_box(from, in_one / row_bytes, in_one % row_bytes / value_bytes);
    }
    to += l_.load_chunks * l_.x_box;
  }
  InputElement none;
  none.bytes = value_bytes;
  none.n = -1;  // no load writes there
  return none;
}

}  // namespace convoy::inspect
