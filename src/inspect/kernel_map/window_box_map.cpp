#include "inspect/kernel_map/window_box_map.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "core/dtype.hpp"
#include "math/divide.hpp"

namespace convoy::inspect {

using namespace cuda::sm80;

WindowBoxMap::WindowBoxMap(const Stage& stage, const WindowTile& tile, const Machine& machine)
    : KernelMap(stage, "window", tile.name(), machine.name),
      tile_of_(tile),
      at_(window_sizes(stage, tile)),
      parts_(box_parts(at_.groups, stage.dtype)),
      size_(static_cast<int>(size_of(stage.dtype))) {
  set_machine(at_, stage, tile, machine);
  const Index pixel = stage.c * size_;
  at_.g.set_distances(stage.h * stage.w * pixel, stage.w * pixel, pixel);
}

int WindowBoxMap::turns() const {
  return math::ceil_div(box().pixels(), warps() / 2 * box_rows);
}
int WindowBoxMap::boxes_of_cta() const {
  return math::ceil_div(box().count, at_.m_tiles);
}

std::vector<MapFact> WindowBoxMap::facts() const {
  const WindowBox& b = box();
  std::vector<MapFact> all;
  const auto add = [&](const char* name, std::string value, std::string note) {
    all.push_back({name, std::move(value), std::move(note)});
  };
  add("box", fmt::format("{} x {} x {}", b.images, b.rows, b.columns),
      "images, rows, columns of outputs before the pool: whole rows");
  add("its input", fmt::format("{} x {} x {}", b.images, b.in_rows, b.in_columns),
      fmt::format("pixels of x, {} bytes of channels each; all {} taps read them at shifted places",
                  at_.groups.channels * size_, box_taps));
  add("grid", fmt::format("{} x {}", at_.m_tiles, at_.n_tiles),
      fmt::format("CTAs: {} x {} boxes and groups, each CTA takes up to {} boxes of one group",
                  b.count, at_.n_tiles, boxes_of_cta()));
  add("CTA", fmt::format("{} threads", tile_of_.threads()),
      fmt::format("{} warps, of 32 rows x 16 filters at a time: {} {} to a box", warps(), turns(),
                  turns() == 1 ? "turn" : "turns"));
  add("products", fmt::format("{}", box_taps * parts_),
      fmt::format("{} taps of {} x 32 bytes of a pixel", box_taps, parts_));
  add("slots", fmt::format("{}", b.slots),
      fmt::format("of {} bytes: a box of pixels, {} bytes apart", b.bytes(), box_pixel_bytes));
  add("shared memory", fmt::format("{} bytes", b.shared_bytes()), "of a CTA");
  add("accumulators", fmt::format("{}", registers),
      "registers of a thread: sums[2][2][4], the same in each turn");
  add("weights", fmt::format("{}", 4 * box_taps * parts_),
      "registers of a thread, which hold a CTA's for all of its boxes");
  if (at_.groups.count > 1 || at_.groups.merged > 1)
    add("groups", fmt::format("{}", at_.groups.count),
        at_.groups.merged > 1
            ? fmt::format("of {} of the stage's each, with zeros between them", at_.groups.merged)
            : fmt::format("{} channels and {} filters each", at_.groups.channels,
                          at_.groups.filters));
  return all;
}

std::string WindowBoxMap::order() const {
  return fmt::format(
      "all {} groups of a box, then the next box; a CTA takes every {}-th box of its group",
      at_.n_tiles, at_.m_tiles);
}

std::vector<TilePlace> WindowBoxMap::first_tiles(int count) const {
  std::vector<TilePlace> all;
  const Index ctas = Index{at_.m_tiles} * at_.n_tiles, tiles = Index{box().count} * at_.n_tiles;
  for (Index i = 0; i < std::min<Index>(count, ctas * boxes_of_cta()); ++i) {
    const CtaPlace place = at_.order.place(static_cast<int>(i % ctas));
    const Index number = place.m + i / ctas * at_.m_tiles;
    if (number < box().count && static_cast<Index>(all.size()) < tiles)
      all.push_back(tile_at(number, place.n));
  }
  return all;
}

TilePlace WindowBoxMap::tile_at(Index x, Index y) const {
  if (y < 0) {
    const Index ctas = Index{at_.m_tiles} * at_.n_tiles;
    if (x < 0 || x >= ctas)
      throw Error(fmt::format("explain: --block {}: the launch has CTAs 0 to {}", x, ctas - 1));
    const CtaPlace place = at_.order.place(static_cast<int>(x));
    return {place.m, place.n, x, 0};
  }
  if (x < 0 || x >= box().count || y >= at_.n_tiles)
    throw Error(fmt::format(
        "explain: --block {},{}: there are {} x {} tiles (boxes, groups), numbered from 0", x, y,
        box().count, at_.n_tiles));
  const CtaPlace place{static_cast<int>(x) % at_.m_tiles, static_cast<int>(y)};
  return {x, y, at_.order.number(place, at_.m_tiles), x / at_.m_tiles};
}

int WindowBoxMap::pixels_of(const math::ConvPixel<int>& first) const {
  const int of_image = static_cast<int>(at_.g.down.d) * box().window;
  const int rows = box_rows_from(at_, first, first.n * of_image + first.p, of_image);
  return std::min(box().pixels(), rows * box().columns);
}

Accumulator WindowBoxMap::accumulator(const OutputIndex& output) const {
  expect_output(stage(), output);
  const auto i = [](Index v) { return static_cast<int>(v); };
  const WindowBox& b = box();
  if (output.p >= Index{at_.g.down.d} * b.window || output.q >= b.columns)
    throw Error(
        fmt::format("explain: the pool takes no window of (p {}, q {}), and the kernel does "
                    "not compute it",
                    output.p, output.q));
  const int number = i(output.n) / b.images * i(b.of_image.d) + i(output.p) / b.rows;
  const int filter = i(output.k) % at_.groups.filters;
  Accumulator a;
  a.tile = tile_at(number, output.k / at_.groups.filters);
  a.row = b.row_of({i(output.n) % b.images, i(output.p) % b.rows, i(output.q)});
  a.column = filter;
  const int pairs = warps() / 2, half = filter / box_filters, of_four = filter % 4;
  const int turn = a.row / box_rows / pairs;
  const int at = place_of_row(a.row % box_rows, pooled());
  a.warp = a.row / box_rows % pairs * 2 + half;
  a.lane = at % 8 * 4 + filter % box_filters / 4;
  a.thread = 32 * a.warp + a.lane;
  const int j = of_four / 2, e = at / 8 % 2 * 2 + of_four % 2;
  a.number = turn * registers + at / 16 * 8 + j * 4 + e;
  a.name = fmt::format("sums[{}][{}][{}]", at / 16, j, e);
  if (turns() > 1) a.name += fmt::format(" in turn {} of {}", turn, turns());
  const Index first = output.k - of_four;
  a.stored = fmt::format("by the same lane as one of the channels {} to {} of a pixel, in {} bytes",
                         first, std::min<Index>(first + 3, stage().k - 1), 4 * size_);
  return a;
}

std::optional<OutputIndex> WindowBoxMap::output_of(const TilePlace& tile, int thread,
                                                   int number) const {
  if (thread < 0 || thread >= tile_of_.threads())
    throw Error(fmt::format("explain: --thread {}: a CTA of window {} has threads 0 to {}", thread,
                            this->tile(), tile_of_.threads() - 1));
  if (number < 0 || number >= registers * turns())
    throw Error(
        fmt::format("explain: register {}: a thread has {} accumulators in each of {} turns",
                    number, registers, turns()));
  const int warp = thread / 32, lane = thread % 32, turn = number / registers;
  const BoxSumPlace place(lane, number % registers, pooled());
  const int row = warp / 2 * box_rows + turn * (tile_of_.threads() / 64) * box_rows + place.row;
  const int filter = box_four(lane, warp % 2) + place.of_four;
  const math::ConvPixel<int> first = box().first_of(static_cast<int>(tile.x));
  if (row >= pixels_of(first) || filter >= BoxGroup(at_, static_cast<int>(tile.y)).filters)
    return std::nullopt;
  const math::ConvPixel<int> in = box().pixel_of(row);
  return OutputIndex{first.n + in.n, first.p + in.p, in.q, tile.y * at_.groups.filters + filter};
}

std::string WindowBoxMap::tap_text(Index step) const {
  return fmt::format("({},{})", step / box_taps_along, step % box_taps_along);
}

OperandPlace WindowBoxMap::operand(const OutputIndex& output, const TapIndex& tap) const {
  const Accumulator a = accumulator(output);
  const int channel =
      a.column / at_.groups.own_filters * at_.groups.own_channels + static_cast<int>(tap.c);
  const int byte = channel * size_;
  OperandPlace place;
  place.step = tap.r * box_taps_along + tap.s;
  place.slot = static_cast<int>(a.tile.turn % 2);
  const auto step = static_cast<std::size_t>(place.step);
  place.in_slot =
      box().output_at(box().pixel_of(a.row), at_.g.rows.stride) + box().taps[step] + byte;
  place.in_shared = slot_begin(place.slot) + place.in_slot;
  if (const auto copy = copied_to(place.in_slot))
    place.brought = fmt::format(
        "cp.async of thread {} (warp {} takes row {} of the box's x), column {}, unit {}",
        copy->row % warps() * 32 + copy->column % box_columns * chunk_units + copy->unit,
        copy->row % warps(), copy->row, copy->column, copy->unit);
  const int row = place_of_row(a.row % box_rows, pooled());
  place.read = fmt::format(
      "ldmatrix.x4 of warps {} and {}, its {} 16 rows, address of lane {}: at the table's position "
      "of row {}, tap {} {} bytes on, part {}",
      a.warp / 2 * 2, a.warp / 2 * 2 + 1, row < 16 ? "first" : "second",
      row % 16 + byte / unit_bytes % 2 * 16, a.row, tap_text(place.step), box().taps[step],
      byte / product_bytes);
  return place;
}

std::optional<WindowBoxMap::Copied> WindowBoxMap::copied_to(int byte) const {
  const WindowBox& b = box();
  const int row_bytes = b.in_row() * box_pixel_bytes;
  const int row = byte / row_bytes, in_row = byte % row_bytes;
  if (row >= b.images * b.in_rows) return std::nullopt;
  // As the lanes go along the row.
  for (int lane = 0; lane < 32; ++lane) {
    const BoxCopies mine(lane);
    int to = b.input_at(0, mine.column) + mine.unit * unit_bytes;
    for (int column = mine.column; column < b.in_columns;
         column += box_columns, to += b.next_columns)
      if (in_row >= to && in_row < to + unit_bytes) return Copied{row, column, mine.unit};
  }
  return std::nullopt;
}

InputElement WindowBoxMap::read_by(const TilePlace& tile, const Copied& copy, int in_unit) const {
  const WindowGeometry& g = at_.g;
  const math::ConvPixel<int> first = box().first_of(static_cast<int>(tile.x));
  int image = 0, of_image = copy.row;
  if (box().images > 1) image = copy.row, of_image = box().of_rows.reduce(image);
  const int byte = copy.unit * unit_bytes + in_unit;
  InputElement x;
  x.bytes = size_;
  x.n = first.n + image, x.h = g.rows.at(first.p, 0) + of_image;
  x.w = copy.column + g.columns.at(0, 0);
  x.c = tile.y * at_.groups.channels + byte / size_;
  const int channels = BoxGroup(at_, static_cast<int>(tile.y)).channels;
  x.inside = copy.unit * unit_bytes < channels * size_ && x.n < at_.images &&
             g.rows.inside(static_cast<int>(x.h)) && g.columns.inside(static_cast<int>(x.w));
  if (x.inside)
    x.byte =
        x.n * g.image + x.h * g.row + x.w * g.pixel + tile.y * at_.groups.channels * size_ + byte;
  return x;
}

InputElement WindowBoxMap::in_slot(const TilePlace& tile, Index step, int byte) const {
  InputElement none;
  none.bytes = size_;
  const auto copy = step < box_taps ? copied_to(byte) : std::nullopt;
  return copy ? read_by(tile, *copy, byte % box_pixel_bytes % unit_bytes) : none;
}

ThreadStep WindowBoxMap::thread_step(const TilePlace& tile, int thread, Index step) const {
  static_cast<void>(output_of(tile, thread, 0));  // throws for a thread that there is not
  if (step < 0 || step >= box_taps)
    throw Error(
        fmt::format("explain: --step {}: a box has steps 0 to {}, a tap each", step, box_taps - 1));
  const WindowBox& b = box();
  const int warp = thread / 32, lane = thread % 32;
  const BoxCopies mine(lane);
  ThreadStep what;
  what.role = fmt::format("warp {}, lane {}: copies, and multiplies", warp, lane);
  what.heading = {"copies (n,h,w)", "of x", "to byte of the slot"};
  constexpr int most = 12;
  int copies = 0;
  for (int row = warp; row < b.images * b.in_rows; row += warps())
    for (int column = mine.column; column < b.in_columns; column += box_columns) {
      if (++copies > most) continue;
      const InputElement x = read_by(tile, {row, column, mine.unit}, 0);
      what.rows.push_back({fmt::format("({},{},{})", x.n, x.h, x.w),
                           x.inside ? fmt::format("16 bytes at {}", x.byte) : "zeros",
                           fmt::format("{}", b.input_at(row, column) + mine.unit * unit_bytes)});
    }
  if (copies > most) what.notes.push_back(fmt::format("and {} copies more", copies - most));
  what.notes.push_back(fmt::format("box {} of the CTA, in slot {}: copied under the box before",
                                   tile.turn, tile.turn % 2));
  const auto tap = static_cast<std::size_t>(step);
  for (int i : {0, 1}) {
    const int row = warp / 2 * box_rows + box_row_of(lane, i, pooled());
    const int from = b.output_at(b.pixel_of(row < b.pixels() ? row : 0), at_.g.rows.stride) +
                     (lane >> 4) * unit_bytes;
    what.notes.push_back(
        fmt::format("ldmatrix {}: its lane addresses row {}: byte {} of the slot by the table, and "
                    "{} for tap {}",
                    i, row, from, from + b.taps[tap], tap_text(step)));
  }
  what.notes.push_back(fmt::format(
      "weights: before the first box its lane addressed those of filter {} of the group",
      box_filter_of(lane, warp % 2)));
  for (const int number : {0, 1, 4, 5}) {
    const auto output = output_of(tile, thread, number);
    const std::string name = fmt::format("sums[0][{}][{}]", number / 4, number % 4);
    what.notes.push_back(output ? fmt::format("{}: output (n {}, p {}, q {}, k {})", name,
                                              output->n, output->p, output->q, output->k)
                                : name + ": outside the output");
  }
  return what;
}

}  // namespace convoy::inspect
