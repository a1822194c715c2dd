// Shared memory and pipeline of `window`.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "cuda/sm80/window_iterators.hpp"
#include "inspect/kernel_map/ring_pipeline.hpp"
#include "inspect/kernel_map/window_map.hpp"

namespace convoy::inspect {

using namespace cuda::sm80;

std::vector<SharedRegion> WindowMap::regions() const {
  const WindowTile& t = tile_of_;
  std::vector<SharedRegion> regions;
  for (int slot = 0; slot < t.slots; ++slot) {
    const int begin = slot * t.slot_bytes();
    regions.push_back({fmt::format("slot {}: pixels", slot), begin, t.m * chunk_bytes,
                       fmt::format("{} rows of 64 bytes", t.m)});
    regions.push_back({fmt::format("slot {}: weights", slot), begin + t.m * chunk_bytes,
                       t.n * chunk_bytes,
                       fmt::format("{} filters of 64 bytes, in blocks of 32", t.n)});
  }
  if (t.visit == Visit::precomputed)
    regions.push_back({"table of taps", t.shared_bytes(),
                       at_.g.r * at_.g.s * static_cast<int>(sizeof(WindowTap)),
                       "a distance and a place each"});
  return regions;
}

std::vector<SharedAccess> WindowMap::accesses() const {
  const WindowTile& t = tile_of_;
  const int warps = t.threads() / 32, weights = t.m * chunk_bytes;
  const auto steps = static_cast<double>(at_.steps);
  // Copies of x that lies dense: 16 bytes at once, or in the largest pieces that its pixels allow.
  const int piece = t.narrow ? std::gcd(8, to_piece()) : 16;
  SharedAccess pixels, filters, a, b;
  pixels.name = "copy pixels", filters.name = "copy weights";
  a.name = "read A, pixels", b.name = "read B, weights";
  const bool fetched = piece < 8;  // by way of registers
  pixels.instruction = fetched ? "st.shared.v4" : fmt::format("cp.async {}", piece);
  filters.instruction = "cp.async 16";
  a.instruction = b.instruction = "ldmatrix.x4";
  pixels.store = filters.store = true;
  pixels.width = fetched ? 16 : piece;
  for (int lane = 0; lane < 32; ++lane) {
    const WindowCopies copies(lane);
    pixels.address.push_back(copies.to);
    pixels.plain_address.push_back(copies.row * chunk_bytes + copies.unit * unit_bytes);
    filters.address.push_back(weights + copies.to);
    filters.plain_address.push_back(weights + copies.in_slab);
    const int a_row = pixel_row_of(lane, 0, warps_), b_row = filter_row_of(lane, 0, warps_);
    const int a_unit = lane >> 4, b_unit = lane >> 3 & 1;
    a.address.push_back(swizzled(a_row, a_unit));
    b.address.push_back(weights + swizzled(b_row, b_unit));
    a.plain_address.push_back(a_row * chunk_bytes + a_unit * unit_bytes);
    b.plain_address.push_back(weights + b_row * chunk_bytes + b_unit * unit_bytes);
  }
  const auto count = [&](SharedAccess& access, int a_step) {
    access.who = fmt::format("each warp, {} a step", a_step);
    access.count(steps * warps * a_step);
  };
  count(pixels, t.m * chunk_units / t.threads() * (16 / pixels.width));
  count(filters, t.n * chunk_units / t.threads());
  count(a, 2 * (t.warp_m / 16));
  count(b, 2 * (t.warp_n / 16));
  return {pixels, filters, a, b};
}

std::vector<AccumulatorRow> WindowMap::accumulator_rows() const {
  std::vector<AccumulatorRow> rows;
  const int registers = tile_of_.warp_m / 16 * (tile_of_.warp_n / 8) * 4;
  for (int number = 0; number < registers; ++number) {
    const WindowSumPlace at(0, number, warps_, pooled(), at_.in_order);
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const AccumulatorRow& known) { return known.row == at.row; });
    if (row == rows.end()) {
      rows.push_back({0, 0, at.row, {}, {}});
      row = std::prev(rows.end());
    }
    row->registers.push_back(number), row->columns.push_back(at.filter);
  }
  return rows;
}

std::vector<std::string> WindowMap::epilogue_text() const {
  std::vector<std::string> text;
  const int outputs = pooled() ? tile_of_.warp_m / 32 : tile_of_.warp_m / 8;
  for (int o = 0; o < std::min(outputs, 2); ++o)
    for (const int lane : {0, 1, 4}) {
      const WindowStore store(lane, o, pooled());
      text.push_back(fmt::format(
          "output {} of {}: lane {:>2} {} filters {:>2}-{:<2} of row {}{}: {} bytes", o, outputs,
          lane, stores_16_bytes() ? "stores" : "stages", store.filter, store.filter + 7, store.row,
          pooled() ? " and the three after it, a window" : "", 8 * size_));
    }
  text.emplace_back(
      stores_16_bytes()
          ? "four lanes store 32 neighbouring channels of a pixel; no shared memory is used, and "
            "all four values of a pooled window are in one thread"
          : "pixels of y are not aligned to 16 bytes: a warp puts its outputs into shared memory, "
            "and "
            "neighbouring lanes store neighbouring channels; all four values of a pooled window "
            "are in one thread");
  return text;
}

SharedMemoryMap WindowMap::shared_memory() const {
  SharedMemoryMap map;
  map.kernel = kernel(), map.tile = tile();
  map.tiles = Index{at_.m_tiles} * at_.n_tiles;
  map.layout =
      "rows of 64 bytes, a step's channels of a pixel or filter: four units of 16 bytes, of which "
      "unit u of row r is in place u ^ (r/2 & 3)";
  map.protects =
      "the swizzle is for reading: ldmatrix takes 16 bytes of eight rows at once, and rows 64 "
      "bytes apart would share two places of four banks. Rows stay 64 bytes apart: no gap "
      "is needed";
  map.regions = regions();
  map.bytes = map.regions.back().begin + map.regions.back().bytes;
  map.accesses = accesses();
  map.accumulators = accumulator_rows();
  map.columns_are = "filters";
  map.accumulator_order =
      at_.in_order
          ? "filters are in order: a product gives a lane two neighbours, and four lanes exchange "
            "words before the store"
          : "filters are packed so that a lane's pairs from four products are eight neighbours "
            "(filter_of_row): the registers of a row skip, the channels do not";
  map.epilogue = epilogue_text();
  return map;
}

int WindowMap::to_piece() const {
  const Index apart = at_.groups.count == 1 ? stage().c : at_.groups.channels | stage().c;
  return static_cast<int>(apart * size_ % 16 == 0 ? 16 : apart * size_ % 16);
}

Pipeline WindowMap::pipeline() const {
  Pipeline pipe =
      ring_pipeline(tile_of_.slots, tile_of_.slot_bytes(), at_.steps, tile_of_.threads(),
                    "between the step's two parts", [&](Index step) { return step_text(step); });
  pipe.kernel = kernel(), pipe.tile = tile();
  pipe.notes = {
      "each step has two 32-byte parts: the second is read from shared memory under the first's "
      "products, the next step's first under the second's",
      fmt::format(
          "{} CTAs share a multiprocessor: one's prologue and epilogue overlap with another's loop",
          tile_of_.ctas),
      "the prologue's weights are asked for before the previous kernel has ended, its pixels "
      "after"};
  return pipe;
}

}  // namespace convoy::inspect
