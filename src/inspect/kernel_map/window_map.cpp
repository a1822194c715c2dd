#include "inspect/kernel_map/window_map.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "core/dtype.hpp"
#include "cuda/sm80/window_iterators.hpp"
#include "inspect/kernel_map/window_box_map.hpp"

namespace convoy::inspect {

using namespace cuda::sm80;

namespace {

int small_int(Index value) {
  return static_cast<int>(value);
}

template <class Visitor>
void go_to(Visitor& visitor, Index step) {
  for (Index i = 0; i < step; ++i) visitor.advance();
}

template <class Visitor>
std::string seen_by(Visitor visitor, Index step) {
  go_to(visitor, step);
  const WindowAt at = visitor.at();
  if (!visitor.valid()) return fmt::format("({},{},{}) none", at.n, at.h, at.w);
  return fmt::format("({},{},{}) +{} {} B", at.n, at.h, at.w, visitor.get(), visitor.bytes());
}

}  // namespace

WindowMap::WindowMap(const Stage& stage, const WindowTile& tile, const std::string& machine)
    : KernelMap(stage, "window", tile.name(), machine),
      tile_of_(tile),
      at_(window_sizes(stage, tile)),
      warps_{tile.m / tile.warp_m, tile.warp_m, tile.warp_n},
      size_(small_int(static_cast<Index>(size_of(stage.dtype)))) {
  const Index pixel = stage.c * size_;
  at_.g.set_distances(stage.h * stage.w * pixel, stage.w * pixel, pixel);
}

std::vector<MapFact> WindowMap::facts() const {
  const WindowTile& t = tile_of_;
  const int of_chunk = chunk_bytes / size_;
  std::vector<MapFact> all =
      implicit_gemm_facts(at_.g.m, pooled(), t.m, t.n, at_.m_tiles, at_.n_tiles);
  const auto add = [&](const char* name, std::string value, std::string note) {
    all.push_back({name, std::move(value), std::move(note)});
  };
  add("CTA", fmt::format("{} threads", t.threads()),
      fmt::format("{} warps, {} x {}, of {} x {} rows x filters", t.threads() / 32, warps_.down,
                  t.n / t.warp_n, t.warp_m, t.warp_n));
  add("iterations", fmt::format("{}", at_.steps),
      fmt::format("{} chunks of {} channels (64 bytes) x {} x {} taps, in the order chunk, r, s{}",
                  at_.chunks, of_chunk, at_.g.r, at_.g.s, t.pairs ? "; two between barriers" : ""));
  add("copies",
      fmt::format("{} + {}", t.m * chunk_units / t.threads(), t.n * chunk_units / t.threads()),
      fmt::format("of 16 bytes by a thread in each iteration: pixels, rows {} apart, and weights",
                  rows_between(t.threads())));
  add("slots", fmt::format("{}", t.slots),
      fmt::format("of {} bytes: {} of pixels, {} of weights", t.slot_bytes(), t.m * chunk_bytes,
                  t.n * chunk_bytes));
  int shared = t.shared_bytes();
  if (t.visit == Visit::precomputed)
    shared += at_.g.r * at_.g.s * static_cast<int>(sizeof(WindowTap));
  add("shared memory", fmt::format("{} bytes", shared),
      fmt::format("per CTA; a multiprocessor has the registers for {} CTAs", t.ctas));
  add("accumulators", fmt::format("{}", t.warp_m / 16 * (t.warp_n / 8) * 4),
      fmt::format("registers of a thread: sums[{}][{}][4]", t.warp_m / 16, t.warp_n / 8));
  if (at_.groups.count > 1 || at_.groups.merged > 1)
    add("groups", fmt::format("{}", at_.groups.count),
        at_.groups.merged > 1
            ? fmt::format("of {} of the stage's each, with zeros between them", at_.groups.merged)
            : fmt::format("{} channels and {} filters each", at_.groups.channels,
                          at_.groups.filters));
  return all;
}

std::string WindowMap::order() const {
  const int panel = static_cast<int>(at_.order.panel.d);
  if (panel == 1)
    return at_.n_tiles == 1
               ? "along gemm_m: there is one tile along gemm_n, and nothing to swizzle"
               : "along gemm_m, filter block after filter block: groups share no pixels";
  return fmt::format(
      "panels of {} tiles along gemm_n: CTAs that start together read the same pixels, and a "
      "panel's weights stay in the L2",
      panel);
}

std::vector<TilePlace> WindowMap::first_tiles(int count) const {
  std::vector<TilePlace> all;
  const Index ctas = Index{at_.m_tiles} * at_.n_tiles;
  for (Index cta = 0; cta < std::min<Index>(count, ctas); ++cta) {
    const CtaPlace place = at_.order.place(small_int(cta));
    all.push_back({place.m, place.n, cta, 0});
  }
  return all;
}

TilePlace WindowMap::tile_at(Index x, Index y) const {
  if (y < 0) {
    const Index ctas = Index{at_.m_tiles} * at_.n_tiles;
    if (x < 0 || x >= ctas)
      throw Error(fmt::format("explain: --block {}: the launch has CTAs 0 to {}", x, ctas - 1));
    const CtaPlace place = at_.order.place(small_int(x));
    return {place.m, place.n, x, 0};
  }
  if (x < 0 || x >= at_.m_tiles || y >= at_.n_tiles)
    throw Error(fmt::format("explain: --block {},{}: the grid has {} x {} tiles, numbered from 0",
                            x, y, at_.m_tiles, at_.n_tiles));
  return {x, y, at_.order.number({small_int(x), small_int(y)}, at_.m_tiles), 0};
}

WindowCta WindowMap::cta_of(const TilePlace& tile) const {
  return {at_, tile_of_.m, tile_of_.n, small_int(tile.cta)};
}
WindowGeometry WindowMap::geometry_of(const TilePlace& tile) const {
  WindowGeometry g = at_.g;
  g.channel_bytes = cta_of(tile).channels * size_;
  return g;
}

Accumulator WindowMap::accumulator(const OutputIndex& output) const {
  expect_output(stage(), output);
  const int row = at_.g.row_of({small_int(output.n), small_int(output.p), small_int(output.q)});
  if (row < 0)
    throw Error(
        fmt::format("explain: the pool takes no window of (p {}, q {}), and the kernel does "
                    "not compute it",
                    output.p, output.q));
  const int group = small_int(output.k) / at_.groups.filters,
            filter = small_int(output.k) % at_.groups.filters;
  const int n_tile = group * static_cast<int>(at_.of_group.d) + filter / tile_of_.n;
  Accumulator a;
  a.tile = tile_at(row / tile_of_.m, n_tile);
  a.row = row % tile_of_.m, a.column = filter % tile_of_.n;
  const int at = place_of_row(a.row, pooled());
  const int column = (a.column & ~31) + row_of_filter(a.column & 31, at_.in_order);
  a.warp = at / tile_of_.warp_m + column / tile_of_.warp_n * warps_.down;
  const int in_m = at % tile_of_.warp_m, in_n = column % tile_of_.warp_n;
  const int i = in_m / 16, half = in_m / 8 % 2, j = in_n / 8, odd = in_n % 2;
  a.lane = in_m % 8 * 4 + in_n % 8 / 2;
  a.thread = 32 * a.warp + a.lane;
  a.number = (i * (tile_of_.warp_n / 8) + j) * 4 + half * 2 + odd;
  a.name = fmt::format("sums[{}][{}][{}]", i, j, half * 2 + odd);
  // In order, a quad of lanes exchanges words first, so that each has eight neighbours.
  const int storing = at_.in_order ? a.lane / 4 * 4 + a.column % 32 / 8 : a.lane;
  a.stored =
      fmt::format("by lane {} as one of the channels {} to {} of a pixel, in {} bytes{}{}", storing,
                  output.k / 8 * 8, std::min<Index>(output.k / 8 * 8 + 7, stage().k - 1), 8 * size_,
                  at_.in_order ? ", after the quad has exchanged words" : "",
                  stores_16_bytes() ? "" : ", to shared memory, from where rows of 32 are stored");
  return a;
}

bool WindowMap::stores_16_bytes() const {
  const WindowGroups& groups = at_.groups;
  return stage().k * size_ % unit_bytes == 0 &&
         (groups.count == 1 || groups.filters * size_ % unit_bytes == 0);
}

std::optional<OutputIndex> WindowMap::output_of(const TilePlace& tile, int thread,
                                                int number) const {
  const int registers = tile_of_.warp_m / 16 * (tile_of_.warp_n / 8) * 4;
  if (thread < 0 || thread >= tile_of_.threads())
    throw Error(fmt::format("explain: --thread {}: a CTA of window {} has threads 0 to {}", thread,
                            this->tile(), tile_of_.threads() - 1));
  if (number < 0 || number >= registers)
    throw Error(fmt::format("explain: register {}: a thread has accumulators 0 to {}", number,
                            registers - 1));
  const WindowCta cta = cta_of(tile);
  const WindowSumPlace at(thread, number, warps_, pooled(), at_.in_order);
  const int m = cta.m + at.row, filter = cta.filter + at.filter;
  if (m >= at_.g.m || filter >= cta.filters) return std::nullopt;
  const math::ConvPixel<int> pixel = at_.g.pixel_of(m);
  return OutputIndex{pixel.n, pixel.p, pixel.q, Index{cta.group} * at_.groups.filters + filter};
}

OperandPlace WindowMap::operand(const OutputIndex& output, const TapIndex& tap) const {
  const Accumulator a = accumulator(output);
  const int filter = small_int(output.k) % at_.groups.filters;
  const int channel = filter / at_.groups.own_filters * at_.groups.own_channels + small_int(tap.c);
  const int byte = channel * size_, chunk = byte / chunk_bytes,
            unit = byte % chunk_bytes / unit_bytes;
  OperandPlace place;
  place.step = (Index{chunk} * at_.g.r + tap.r) * at_.g.s + tap.s;
  place.slot = small_int(place.step % tile_of_.slots);
  const int row = place_of_row(a.row, pooled());
  place.in_slot = swizzled(row, unit) + byte % unit_bytes;
  place.in_shared = Index{place.slot} * tile_of_.slot_bytes() + place.in_slot;
  const int between = rows_between(tile_of_.threads());
  place.brought =
      fmt::format("cp.async of thread {}, its copy {} of {}", row % between * chunk_units + unit,
                  row / between, tile_of_.m * chunk_units / tile_of_.threads());
  const int first_lane = unit % 2 * 16 + row % 16;
  place.read = fmt::format(
      "ldmatrix.x4 of {}, address of lane {}: part {} of the step, matrix {} of the pixels' four",
      warps_.down == 1
          ? std::string("every warp")
          : fmt::format("the warps w with w mod {} = {}", warps_.down, a.warp % warps_.down),
      first_lane, unit / 2, unit % 2 * 2 + row % 16 / 8);
  return place;
}

InputElement WindowMap::in_slot(const TilePlace& tile, Index step, int byte) const {
  const int row = byte / chunk_bytes, unit = (byte % chunk_bytes / unit_bytes) ^ (row >> 1 & 3);
  const WindowCta cta = cta_of(tile);
  const WindowGeometry g = geometry_of(tile);
  Optimized<1> pixels(g, cta.m + tile_row(row, pooled()), 0, unit);
  InputElement x;
  x.bytes = size_;
  if (step >= at_.steps || row >= tile_of_.m) return x;
  go_to(pixels, step);
  const WindowAt at = pixels.at();
  const int in_unit = byte % unit_bytes;
  x.inside = pixels.valid() && in_unit < pixels.bytes();
  const int first = cta.group * at_.groups.channels;
  x.n = at.n, x.h = at.h, x.w = at.w, x.c = first + (at.byte + in_unit) / size_;
  if (x.inside) x.byte = pixels.get() + Index{first} * size_ + in_unit;
  return x;
}

std::string WindowMap::step_text(Index step) const {
  const Index s = step % at_.g.s, r = step / at_.g.s % at_.g.r, chunk = step / at_.g.s / at_.g.r;
  const Index first = chunk * (chunk_bytes / size_);
  return fmt::format("tap ({},{}) of channels {}-{}", r, s, first, first + chunk_bytes / size_ - 1);
}

ThreadStep WindowMap::thread_step(const TilePlace& tile, int thread, Index step) const {
  static_cast<void>(output_of(tile, thread, 0));  // throws for a thread that there is not
  if (step < 0 || step >= at_.steps)
    throw Error(fmt::format("explain: --step {}: a tile has steps 0 to {}", step, at_.steps - 1));
  const WindowCta cta = cta_of(tile);
  const WindowGeometry g = geometry_of(tile);
  const WindowCopies mine(thread);
  const int between = rows_between(tile_of_.threads());
  std::vector<WindowTap> taps;
  taps.reserve(static_cast<std::size_t>(g.r) * static_cast<std::size_t>(g.s));
  for (int i = 0; i < g.r * g.s; ++i) taps.push_back(tap_of(g, i));
  ThreadStep what;
  what.role = fmt::format("warp {}, lane {}: copies, and multiplies", thread / 32, thread % 32);
  what.heading = {"row",       "(n,p,q)",     "Analytic: (n,h,w) +byte, bytes",
                  "Optimized", "Precomputed", "to byte of the slot"};
  const bool masks = g.r <= most_taps_along && g.s <= most_taps_along;
  for (int i = 0; i < tile_of_.m * chunk_units / tile_of_.threads(); ++i) {
    const int row = cta.m + tile_row(mine.row + i * between, pooled());
    const bool there = row < g.m;
    const math::ConvPixel<int> pixel = g.pixel_of(there ? row : 0);
    what.rows.push_back(
        {fmt::format("{}", row),
         there ? fmt::format("({},{},{})", pixel.n, pixel.p, pixel.q) : "beyond the last",
         seen_by(Analytic<1>(g, row, 0, mine.unit), step),
         masks ? seen_by(Optimized<1>(g, row, 0, mine.unit), step) : "R or S above 32",
         seen_by(Precomputed<1>(g, row, 0, mine.unit, taps.data()), step),
         fmt::format("{}", mine.to + i * between * chunk_bytes)});
  }
  what.notes.push_back(fmt::format("step {}: {}, unit {} of its 64 bytes, slot {}", step,
                                   step_text(step), mine.unit, step % tile_of_.slots));
  const int block_between = blocks_between(tile_of_.threads());
  for (int i = 0; i < tile_of_.n * chunk_units / tile_of_.threads(); ++i) {
    const int block = cta.filter / block_filters + mine.block + i * block_between;
    const int row = mine.in_slab / chunk_bytes;
    what.notes.push_back(
        block >= at_.blocks
            ? fmt::format("weights {}: a block beyond the last filter, zeros", i)
            : fmt::format("weights {}: filter {} of the group, 16 bytes at {} of w as packed, to "
                          "byte {} of the slot",
                          i, block * block_filters + filter_of_row(row, at_.in_order),
                          (Index{cta.group} * at_.blocks + block) * at_.block_bytes +
                              step * slab_bytes + mine.in_slab,
                          tile_of_.m * chunk_bytes + mine.to + i * block_between * slab_bytes));
  }
  const int lane = thread % 32, warp = thread / 32, weights = tile_of_.m * chunk_bytes;
  const int a = swizzled(pixel_row_of(lane, warp, warps_), lane >> 4),
            b = swizzled(filter_row_of(lane, warp, warps_), lane >> 3 & 1);
  const auto second = [](int first) { return of_part(static_cast<std::uint32_t>(first), 1); };
  what.notes.push_back(fmt::format(
      "ldmatrix: its lane addresses bytes {} and {} (part 1: {} and {}) of the slot, and each 16 "
      "rows, 1024 bytes, on",
      a, weights + b, second(a), static_cast<std::uint32_t>(weights) + second(b)));
  for (const int number : {0, 1, 2, 3}) {
    const auto output = output_of(tile, thread, number);
    what.notes.push_back(output ? fmt::format("sums[0][0][{}]: output (n {}, p {}, q {}, k {})",
                                              number, output->n, output->p, output->q, output->k)
                                : fmt::format("sums[0][0][{}]: outside the output", number));
  }
  return what;
}

std::unique_ptr<KernelMap> map_window(const Stage& stage, const Machine& machine,
                                      const std::string& tile) {
  expect_served("window", stage, window_refusals(stage, machine));
  const std::vector<WindowTile> tiles = window_tiles(stage, machine);
  std::string names;
  const WindowTile* best = nullptr;
  for (const WindowTile& one : tiles) {
    names += (names.empty() ? "" : ", ") + one.name();
    if (tile.empty()
            ? !best || window_seconds(stage, one, machine) < window_seconds(stage, *best, machine)
            : one.name() == tile)
      best = &one;
  }
  if (!best)
    throw Error(fmt::format("explain: --tile \"{}\": window has for this stage {}", tile, names));
  if (best->box) return std::make_unique<WindowBoxMap>(stage, *best, machine);
  return std::make_unique<WindowMap>(stage, *best, machine.name);
}

}  // namespace convoy::inspect
