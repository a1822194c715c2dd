#include "inspect/kernel_map/fma_map.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>

#include "convoy/error.hpp"
#include "core/dtype.hpp"

namespace convoy::inspect {

using namespace cuda;

FmaMap::FmaMap(const Stage& stage, const FmaTile& tile, const std::string& machine)
    : KernelMap(stage, "fma", fma_tile_name(tile), machine),
      tile_of_(tile),
      at_(fma_sizes(stage, tile)),
      l_(layout_of(tile)),
      in_rows_(math::conv_rows<int>(stage)),
      in_columns_(math::conv_columns<int>(stage)),
      x_(dense_x(stage, stage.n)),
      size_(static_cast<int>(size_of(stage.dtype))) {}

FmaMap::Layout FmaMap::layout_of(const FmaTile& tile) {
  return with_fma_shape(tile, [&]<class Shape>() {
    using Shared = FmaShared<Shape>;
    const auto i = [](std::size_t bytes) { return static_cast<int>(bytes); };
    Layout l;
    l.pixels = i(offsetof(Shared, pixels)), l.filters = i(offsetof(Shared, filters));
    l.rows = i(offsetof(Shared, rows)), l.y_at = i(offsetof(Shared, y_at));
    l.pixels_slot = i(sizeof(Shared::pixels[0])), l.filters_slot = i(sizeof(Shared::filters[0]));
    l.pixels_row = i(sizeof(Shared::pixels[0][0])),
    l.filters_row = i(sizeof(Shared::filters[0][0]));
    l.bytes = i(sizeof(Shared));
    return l;
  });
}

DType FmaMap::output_type() const {
  return stage().output_dtype(true);
}

std::vector<MapFact> FmaMap::facts() const {
  const FmaTile& t = tile_of_;
  std::vector<MapFact> all =
      implicit_gemm_facts(at_.rows.m, pooled(), t.m, t.n, at_.m_tiles, at_.n_tiles);
  const auto add = [&](const char* name, std::string value, std::string note) {
    all.push_back({name, std::move(value), std::move(note)});
  };
  add("CTA", fmt::format("{} threads", fma_threads),
      fmt::format("{} x {}, of {} x {} rows x filters, in fours with a distance", t.m / t.thread_m,
                  across(), t.thread_m, t.thread_n));
  add("iterations", fmt::format("{}", at_.steps),
      fmt::format("of {} products of each output, in the order r, s, c", fma_depth));
  add("copies", fmt::format("{} + {}", copies(), (fours() * fma_depth - 1) / fma_threads + 1),
      fmt::format("per thread in each iteration: values of x, of one product and rows {} apart, "
                  "widened to fp32{}; weights, four filters at once",
                  fma_rows_between, stage().norm ? " and normalised" : ""));
  add("slots", "2",
      fmt::format("of {} bytes: {} of pixels, {} of weights", l_.pixels_slot + l_.filters_slot,
                  l_.pixels_slot, l_.filters_slot));
  add("shared memory", fmt::format("{} bytes", l_.bytes),
      fmt::format("per CTA; a multiprocessor has the registers for {} CTAs or more", t.ctas));
  add("accumulators", fmt::format("{}", t.thread_m * t.thread_n),
      fmt::format("registers of a thread: sums[{}][{}]", t.thread_m, t.thread_n));
  if (stage().groups > 1)
    add("groups", fmt::format("{}", stage().groups),
        fmt::format("{} channels and {} filters each", at_.group_c, at_.group_k));
  return all;
}

std::string FmaMap::order() const {
  return at_.n_tiles == 1
             ? "along gemm_m: there is one tile along gemm_n"
             : fmt::format("the {} tiles along gemm_n of the same pixels follow each other",
                           at_.n_tiles);
}

std::vector<TilePlace> FmaMap::first_tiles(int count) const {
  std::vector<TilePlace> all;
  const Index ctas = Index{at_.m_tiles} * at_.n_tiles;
  for (Index cta = 0; cta < std::min<Index>(count, ctas); ++cta) all.push_back(tile_at(cta, -1));
  return all;
}

TilePlace FmaMap::tile_at(Index x, Index y) const {
  const Index ctas = Index{at_.m_tiles} * at_.n_tiles;
  if (y < 0) {
    if (x < 0 || x >= ctas)
      throw Error(fmt::format("explain: --block {}: the launch has CTAs 0 to {}", x, ctas - 1));
    return {x / at_.n_tiles, x % at_.n_tiles, x, 0};
  }
  if (x < 0 || x >= at_.m_tiles || y >= at_.n_tiles)
    throw Error(fmt::format("explain: --block {},{}: the grid has {} x {} tiles, numbered from 0",
                            x, y, at_.m_tiles, at_.n_tiles));
  return {x, y, x * at_.n_tiles + y, 0};
}

FmaCta FmaMap::cta_of(const TilePlace& tile) const {
  return {at_, tile_of_.m, tile_of_.n, static_cast<int>(tile.cta)};
}

Accumulator FmaMap::accumulator(const OutputIndex& output) const {
  expect_output(stage(), output);
  const auto i = [](Index v) { return static_cast<int>(v); };
  const int row = at_.rows.row_of({i(output.n), i(output.p), i(output.q)});
  if (row < 0)
    throw Error(
        fmt::format("explain: the pool takes no window of (p {}, q {}), and the kernel does "
                    "not compute it",
                    output.p, output.q));
  const FmaTile& t = tile_of_;
  const int of_group = (at_.group_k - 1) / t.n + 1, group = i(output.k) / at_.group_k,
            filter = i(output.k) % at_.group_k;
  Accumulator a;
  a.tile = tile_at(row / t.m, group * of_group + filter / t.n);
  a.row = row % t.m, a.column = filter % t.n;
  const FmaHeld m = fma_held(a.row, t.m, t.thread_m), n = fma_held(a.column, t.n, t.thread_n);
  a.thread = m.place * across() + n.place;
  a.warp = a.thread / 32, a.lane = a.thread % 32;
  a.number = m.i * t.thread_n + n.i;
  a.name = fmt::format("sums[{}][{}]", m.i, n.i);
  const int first = group * at_.group_k + filter / 4 * 4;
  a.stored = fmt::format(
      "by the same lane, with {}channels {} to {}: in one store if y takes stores of four channels",
      pooled() ? "the largest of the window's four rows, of " : "", first,
      std::min(first + 3, (group + 1) * at_.group_k - 1));
  return a;
}

std::optional<OutputIndex> FmaMap::output_of(const TilePlace& tile, int thread, int number) const {
  const FmaTile& t = tile_of_;
  if (thread < 0 || thread >= fma_threads)
    throw Error(fmt::format("explain: --thread {}: a CTA of fma has threads 0 to {}", thread,
                            fma_threads - 1));
  if (number < 0 || number >= t.thread_m * t.thread_n)
    throw Error(fmt::format("explain: register {}: a thread has accumulators 0 to {}", number,
                            t.thread_m * t.thread_n - 1));
  const FmaCta cta = cta_of(tile);
  const FmaPart part(thread, across());
  const int row = cta.m + fma_place(part.row, number / t.thread_n, t.m, t.thread_m),
            filter = cta.filter + fma_place(part.column, number % t.thread_n, t.n, t.thread_n);
  if (row >= at_.rows.m || filter >= at_.group_k) return std::nullopt;
  const math::ConvPixel<int> pixel = at_.rows.pixel_of(row);
  return OutputIndex{pixel.n, pixel.p, pixel.q, Index{cta.group} * at_.group_k + filter};
}

OperandPlace FmaMap::operand(const OutputIndex& output, const TapIndex& tap) const {
  const Accumulator a = accumulator(output);
  const Index k = gemm_column(stage(), tap);
  const int product = static_cast<int>(k % fma_depth);
  OperandPlace place;
  place.step = k / fma_depth;
  place.slot = fma_slot(static_cast<int>(place.step & 1));
  place.in_slot = product * l_.pixels_row + a.row * static_cast<int>(sizeof(float));
  place.in_shared = l_.pixels + Index{place.slot} * l_.pixels_slot + place.in_slot;
  place.brought = fmt::format(
      "a load of thread {}, its value {} of {}, kept in a register until the other slot is read",
      a.row % fma_rows_between * fma_depth + product, a.row / fma_rows_between, copies());
  place.read = fmt::format(
      "LDS.128 of {} threads, {} to {}: rows {} to {} of product {}, once for {} filters of each",
      across(), a.thread / across() * across(), (a.thread / across() + 1) * across() - 1,
      a.row / 4 * 4, a.row / 4 * 4 + 3, product, tile_of_.thread_n);
  return place;
}

math::ConvTap<int> FmaMap::walked(int product, Index step) const {
  math::ConvTap<int> tap = math::ConvTaps<int>{at_.taps.s, at_.taps.c}.at(product);
  for (Index i = 0; i < step; ++i) at_.taps.advance(tap);
  return tap;
}

InputElement FmaMap::read_by(const FmaCta& cta, int row, const math::ConvTap<int>& tap) const {
  InputElement x;
  x.bytes = size_;
  if (cta.m + row >= at_.rows.m) return x;
  const math::ConvPixel<int> pixel = at_.rows.pixel_of(cta.m + row);
  FmaRow from{};
  from.begin_at(pixel, in_rows_, in_columns_, x_);
  const FmaTapPlace place(tap, at_.r, Index{cta.group} * at_.group_c, in_rows_, in_columns_, x_);
  x.inside = place.row_inside(from.h) && place.column_inside(from.w);
  x.n = pixel.n, x.h = from.h + place.down, x.w = from.w + place.right, x.c = place.channel;
  if (x.inside) x.byte = (from.at + place.at) * size_;
  return x;
}

InputElement FmaMap::in_slot(const TilePlace& tile, Index step, int byte) const {
  const int product = byte / l_.pixels_row,
            row = byte % l_.pixels_row / static_cast<int>(sizeof(float));
  InputElement none;
  none.bytes = size_;
  if (step >= at_.steps || product >= fma_depth || row >= tile_of_.m) return none;  // or the gap
  return read_by(cta_of(tile), row, walked(product, step));
}

std::vector<std::string> FmaMap::weight_notes(const FmaCta& cta, int thread, Index step) const {
  std::vector<std::string> notes;
  for (int number = thread; number < fours() * fma_depth; number += fma_threads) {
    const FmaFour four(number, fours());
    const Index from =
        ((Index{cta.group} * at_.steps + step) * fma_depth + four.product) * at_.padded_k +
        cta.filter + four.filter;
    const int to = l_.filters + fma_slot(static_cast<int>(step & 1)) * l_.filters_slot +
                   four.product * l_.filters_row + four.filter * 4;
    notes.push_back(
        cta.filter + four.filter >= at_.padded_k
            ? fmt::format("weights {}: beyond the last filter, zeros", number / fma_threads)
            : fmt::format("weights {}: filters {} to {} of the group, product {}, 16 bytes at {} "
                          "of w as packed, to byte {} of shared memory",
                          number / fma_threads, cta.filter + four.filter,
                          cta.filter + four.filter + 3, step * fma_depth + four.product, from * 4,
                          to));
  }
  return notes;
}

ThreadStep FmaMap::thread_step(const TilePlace& tile, int thread, Index step) const {
  static_cast<void>(output_of(tile, thread, 0));  // throws for a thread that there is not
  if (step < 0 || step >= at_.steps)
    throw Error(fmt::format("explain: --step {}: a tile has steps 0 to {}", step, at_.steps - 1));
  const FmaCta cta = cta_of(tile);
  const FmaCopies mine(thread);
  const math::ConvTap<int> tap = walked(mine.product, step);
  const int slot = fma_slot(static_cast<int>(step & 1));
  ThreadStep what;
  what.role = fmt::format("warp {}, lane {}: copies, and multiplies", thread / 32, thread % 32);
  what.heading = {"row", "(n,p,q)", "reads (n,h,w)", "of x", "to byte of the slot"};
  for (int i = 0; i < copies(); ++i) {
    const int row = mine.row + i * fma_rows_between, number = cta.m + row;
    const bool there = number < at_.rows.m;
    const math::ConvPixel<int> pixel = at_.rows.pixel_of(there ? number : 0);
    const InputElement x = read_by(cta, row, tap);
    what.rows.push_back(
        {fmt::format("{}", number),
         there ? fmt::format("({},{},{})", pixel.n, pixel.p, pixel.q) : "beyond the last",
         there ? fmt::format("({},{},{})", x.n, x.h, x.w) : "none",
         x.inside ? fmt::format("byte {}", x.byte) : "reads 0",
         fmt::format("{}", mine.product * l_.pixels_row + row * 4)});
  }
  what.notes.push_back(
      tap.r >= at_.r
          ? fmt::format("step {}: product {} is after the last, zeros; slot {}", step,
                        step * fma_depth + mine.product, slot)
          : fmt::format("step {}: product {}, tap ({},{}) of the group's channel {}; slot {}", step,
                        step * fma_depth + mine.product, tap.r, tap.s, tap.c, slot));
  for (std::string& note : weight_notes(cta, thread, step)) what.notes.push_back(std::move(note));
  const FmaPart part(thread, across());
  what.notes.push_back(fmt::format(
      "multiplies, of each product: rows from {} and filters from {} of the tile, in fours",
      fma_place(part.row, 0, tile_of_.m, tile_of_.thread_m),
      fma_place(part.column, 0, tile_of_.n, tile_of_.thread_n)));
  for (const int number : {0, 1, tile_of_.thread_n, tile_of_.thread_n + 1}) {
    const auto output = output_of(tile, thread, number);
    const int i = number / tile_of_.thread_n, j = number % tile_of_.thread_n;
    what.notes.push_back(output ? fmt::format("sums[{}][{}]: output (n {}, p {}, q {}, k {})", i, j,
                                              output->n, output->p, output->q, output->k)
                                : fmt::format("sums[{}][{}]: outside the output", i, j));
  }
  return what;
}

std::unique_ptr<KernelMap> map_fma(const Stage& stage, const Machine& machine,
                                   const std::string& tile) {
  expect_served("fma", stage, fma_refusals(stage));
  const std::vector<FmaTile> tiles = fma_tiles(stage);
  const FmaTile* best = nullptr;
  std::string names;
  for (const FmaTile& one : tiles) {
    names += (names.empty() ? "" : ", ") + fma_tile_name(one);
    if (tile.empty()
            ? !best || fma_seconds(stage, one, machine) < fma_seconds(stage, *best, machine)
            : fma_tile_name(one) == tile)
      best = &one;
  }
  if (!best)
    throw Error(fmt::format("explain: --tile \"{}\": fma has for this stage {}", tile, names));
  return std::make_unique<FmaMap>(stage, *best, machine.name);
}

}  // namespace convoy::inspect
