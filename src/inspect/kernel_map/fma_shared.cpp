// Shared memory and pipeline of `fma`.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "inspect/kernel_map/fma_map.hpp"
#include "inspect/kernel_map/ring_pipeline.hpp"

namespace convoy::inspect {

using namespace cuda;

std::vector<SharedRegion> FmaMap::regions() const {
  const FmaTile& t = tile_of_;
  std::vector<SharedRegion> regions;
  for (int slot : {0, 1})
    regions.push_back(
        {fmt::format("slot {}: pixels", slot), l_.pixels + slot * l_.pixels_slot, l_.pixels_slot,
         fmt::format("{} products of {} rows in fp32, and {} more", fma_depth, t.m, fma_gap)});
  for (int slot : {0, 1})
    regions.push_back({fmt::format("slot {}: weights", slot), l_.filters + slot * l_.filters_slot,
                       l_.filters_slot, fmt::format("{} products of {} filters", fma_depth, t.n)});
  regions.push_back({"rows", l_.rows, l_.y_at - l_.rows, "position of each row's first tap in x"});
  regions.push_back(
      {"outputs", l_.y_at, l_.bytes - l_.y_at, "position of each row, or of its window, in y"});
  return regions;
}

namespace {

SharedAccess access_of(const char* name, const char* instruction, bool store, int width) {
  SharedAccess access;
  access.name = name, access.instruction = instruction;
  access.store = store, access.width = width;
  return access;
}

}  // namespace

std::vector<SharedAccess> FmaMap::accesses() const {
  constexpr int word = sizeof(float), pair = 2 * word, four = 4 * word;
  const FmaTile& t = tile_of_;
  SharedAccess rows_written = access_of("write positions of rows", "STS.64", true, pair),
               outputs_written = access_of("write positions of outputs", "STS.64", true, pair),
               pixels = access_of("write pixels", "STS", true, word),
               filters = access_of("write weights", "STS.128", true, four),
               rows = access_of("read rows' first taps", "LDS.64", false, pair),
               begins = access_of("read positions of rows", "LDS.64", false, pair),
               a = access_of("read A, pixels", "LDS.128", false, four),
               b = access_of("read B, weights", "LDS.128", false, four),
               outputs = access_of("read positions of outputs", "LDS.128", false, four);
  for (int lane = 0; lane < 32; ++lane) {
    const FmaCopies copies(lane);
    pixels.address.push_back(l_.pixels + copies.product * l_.pixels_row + copies.row * word);
    pixels.plain_address.push_back((copies.product * t.m + copies.row) * word);
    const FmaFour weights(lane, fours());
    filters.address.push_back(l_.filters + weights.product * l_.filters_row +
                              weights.filter * word);
    constexpr int row_bytes = sizeof(FmaRow), y_bytes = sizeof(Index);
    rows_written.address.push_back(l_.rows + lane * row_bytes);
    outputs_written.address.push_back(l_.y_at + lane * y_bytes);
    begins.address.push_back(l_.rows + copies.row * row_bytes);
    rows.address.push_back(begins.address.back() + y_bytes);
    const FmaPart part(lane, across());
    const int row = fma_place(part.row, 0, t.m, t.thread_m);
    a.address.push_back(l_.pixels + row * word);
    b.address.push_back(l_.filters + fma_place(part.column, 0, t.n, t.thread_n) * word);
    outputs.address.push_back(l_.y_at + row * y_bytes);
  }
  for (SharedAccess* same :
       {&rows_written, &outputs_written, &filters, &rows, &begins, &a, &b, &outputs})
    same->plain_address = same->address;
  const auto steps = static_cast<double>(at_.steps);
  const double warps = fma_threads / 32.0;
  const auto count = [&](SharedAccess& access, int a_step, const char* note = "") {
    access.who = fmt::format("each warp, {} a step{}", a_step, note);
    access.count(steps * warps * a_step);
  };
  rows_written.who = "once: for each 32 rows the place in x, and the first tap";
  rows_written.count(2 * t.m / 32.0);
  outputs_written.who = "once: for each 32 rows";
  outputs_written.count(t.m / 32.0);
  count(pixels, copies());
  // Of the narrow tile a step has fewer fours than threads, and half of the warps none.
  const int all_fours = fours() * fma_depth;
  if (all_fours < fma_threads) {
    filters.who = fmt::format("{} warps, 1 a step", all_fours / 32);
    filters.count(steps * all_fours / 32);
  } else {
    count(filters, all_fours / fma_threads);
  }
  count(rows, copies());
  begins.at_most = true;
  count(begins, copies(), ", except if the tap of all its rows is in the padding");
  count(a, fma_depth * t.thread_m / 4);
  count(b, fma_depth * t.thread_n / 4);
  // A pool reads the first row of each window alone.
  if (pooled()) outputs.instruction = "LDS.64", outputs.width = pair;
  const double fours_of_thread = t.thread_m / 4.0 * t.thread_n / 4.0;
  outputs.at_most = true;
  outputs.who = "once: each warp, of its rows, for each four of its filters that exist";
  outputs.count(warps * fours_of_thread * (pooled() ? 1 : 2));
  return {rows_written, outputs_written, pixels, filters, rows, begins, a, b, outputs};
}

std::vector<AccumulatorRow> FmaMap::accumulator_rows() const {
  const FmaTile& t = tile_of_;
  const FmaPart part(0, across());
  std::vector<AccumulatorRow> rows;
  for (int i = 0; i < t.thread_m; ++i) {
    rows.push_back({0, 0, fma_place(part.row, i, t.m, t.thread_m), {}, {}});
    for (int j = 0; j < t.thread_n; ++j) {
      rows.back().registers.push_back(i * t.thread_n + j);
      rows.back().columns.push_back(fma_place(part.column, j, t.n, t.thread_n));
    }
  }
  return rows;
}

std::vector<std::string> FmaMap::epilogue_text() const {
  const FmaTile& t = tile_of_;
  const auto bytes = 4 * size_of(output_type());
  std::vector<std::string> text;
  for (const int lane : {0, 1, across()}) {
    const FmaPart part(lane, across());
    const int row = fma_place(part.row, 0, t.m, t.thread_m),
              filter = fma_place(part.column, 0, t.n, t.thread_n);
    text.push_back(fmt::format("lane {:>2} stores filters {:>2}-{:<2} of row {}{}: {} bytes", lane,
                               filter, filter + 3, row,
                               pooled() ? " and the three after it, a window" : "", bytes));
  }
  text.emplace_back(
      "one channel at a time if y's channels are not adjacent, or a group's filters are no "
      "multiple of four; shared memory is used only for the positions of rows in y");
  return text;
}

SharedMemoryMap FmaMap::shared_memory() const {
  SharedMemoryMap map;
  map.kernel = kernel(), map.tile = tile();
  map.tiles = Index{at_.m_tiles} * at_.n_tiles;
  map.layout = fmt::format(
      "products in sequence: for each the pixels of all rows, {} bytes, and in another part its {} "
      "filters",
      tile_of_.m * 4, tile_of_.n);
  map.protects = fmt::format(
      "{} bytes after a product's pixels are for writing: 16 lanes bring one row's 16 products, "
      "which would be {} bytes apart, all in one bank. Two of them still share one. Reading needs "
      "no gap: lanes side by side read neighbours, or the same",
      fma_gap * 4, tile_of_.m * 4);
  map.regions = regions();
  map.bytes = l_.bytes;
  map.accesses = accesses();
  map.accumulators = accumulator_rows();
  map.columns_are = "filters";
  map.accumulator_order =
      "rows and filters come in fours, a share of the tile apart (fma_place), so that neighbouring "
      "threads read neighbouring words";
  map.epilogue = epilogue_text();
  return map;
}

Pipeline FmaMap::pipeline() const {
  const PipelineActor every{
      "every thread", fma_threads,
      "loads its part of the next step into registers, multiplies this one from shared memory, "
      "then "
      "writes the loaded values to the other slot",
      "its own loads, when it writes them; then the others' writes, by a barrier of the CTA"};
  Pipeline pipe = ring_pipeline(
      2, l_.pixels_slot + l_.filters_slot, at_.steps, every,
      [&](Index step) {
        const Index first = step * fma_depth;
        return fmt::format(
            "products {} to {}", first,
            std::min<Index>(first + fma_depth, stage().r * stage().s * at_.group_c) - 1);
      },
      [](Index step) {
        const auto slot = [](Index of) { return fma_slot(static_cast<int>(of & 1)); };
        return step == 0 ? std::string("slot 0 is written, and a barrier")
                         : fmt::format("slot {} is written, and a barrier: slot {} is free",
                                       slot(step), slot(step - 1));
      });
  pipe.kernel = kernel(), pipe.tile = tile();
  pipe.notes = {
      "a load comes into registers while the step before is multiplied: a slot is written only "
      "when "
      "no thread reads it any more",
      "the first step's weights are asked for before the previous kernel has ended, its pixels "
      "after"};
  return pipe;
}

}  // namespace convoy::inspect
