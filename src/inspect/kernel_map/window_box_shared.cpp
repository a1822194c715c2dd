// Shared memory and pipeline of `window`'s box tiles.
#include <fmt/core.h>

#include <algorithm>

#include "inspect/kernel_map/ring_pipeline.hpp"
#include "inspect/kernel_map/window_box_map.hpp"

namespace convoy::inspect {

using namespace cuda::sm80;

namespace {

constexpr int half_lanes = 16;

/// Where a byte of a box would lie if pixels were 64 bytes apart.
int without_gap(int byte) {
  return byte / box_pixel_bytes * chunk_bytes + byte % box_pixel_bytes;
}

/// Adds an instruction at these addresses, `times` of it.
void add(SharedAccess& access, const std::vector<int>& address, double times) {
  SharedAccess one;
  one.address = one.plain_address = address;
  for (int& byte : one.plain_address)
    if (byte >= 0) byte = without_gap(byte);
  one.use = bank_use(one.address, access.width);
  one.plain = bank_use(one.plain_address, access.width);
  access.add(one, times);
}

}  // namespace

std::vector<SharedRegion> WindowBoxMap::regions() const {
  const WindowBox& b = box();
  const int table = 4 * b.table_rows(), end = b.shared_bytes();
  return {{"table of rows", 0, table, "position of each row's first tap in the slot"},
          {"slot 0", slot_begin(0), b.bytes(),
           fmt::format("{} rows of {} pixels, {} bytes apart", b.images * b.in_rows, b.in_row(),
                       box_pixel_bytes)},
          {b.slots > 1 ? "slot 1" : "weights", slot_begin(1), end - slot_begin(1),
           b.slots > 1 ? "and before the first boxes the weights, which registers then hold"
                       : "until registers hold them"}};
}

SharedAccess WindowBoxMap::copies() const {
  const WindowBox& b = box();
  SharedAccess copies;
  copies.name = "copy pixels", copies.instruction = "cp.async 16", copies.store = true;
  copies.who = "each warp, eight columns of a row at a time";
  for (int first = 0; first < b.in_columns; first += box_columns) {
    std::vector<int> address;
    for (int lane = 0; lane < 32; ++lane) {
      const BoxCopies mine(lane);
      address.push_back(first + mine.column < b.in_columns
                            ? b.input_at(0, first + mine.column) + mine.unit * unit_bytes
                            : -1);
    }
    add(copies, address, b.images * b.in_rows);  // rows shift all lanes alike
  }
  return copies;
}

SharedAccess WindowBoxMap::pixel_reads() const {
  const WindowBox& b = box();
  SharedAccess reads;
  reads.name = "read A, pixels", reads.instruction = "ldmatrix.x4";
  reads.who = fmt::format("each warp, {} a turn", 2 * box_taps * parts_);
  for (int first = 0; first < b.pixels(); first += box_rows)
    for (int i : {0, 1}) {
      std::vector<int> address;
      for (int lane = 0; lane < 32; ++lane) {
        const int row = first + box_row_of(lane, i, pooled());
        const int from = b.output_at(b.pixel_of(row < b.pixels() ? row : 0), at_.g.rows.stride);
        address.push_back(from + lane / half_lanes * unit_bytes);
      }
      add(reads, address, 2.0 * box_taps * parts_);  // both halves of the filters; taps shift alike
    }
  return reads;
}

SharedAccess WindowBoxMap::weight_copies() const {
  SharedAccess copies;
  copies.name = "copy weights", copies.instruction = "cp.async 16", copies.store = true;
  copies.who = "all warps, a group's block for all boxes of its CTA";
  for (int lane = 0; lane < 32; ++lane) {  // as BoxWeights::copy
    copies.address.push_back(swizzled(lane / chunk_units, lane % chunk_units));
    copies.plain_address.push_back(lane * unit_bytes);
  }
  copies.count(box_taps * block_filters * chunk_units / 32.0 * at_.m_tiles / box().count);
  return copies;
}

SharedAccess WindowBoxMap::weight_reads() const {
  SharedAccess reads;
  reads.name = "read B, weights", reads.instruction = "ldmatrix.x4";
  reads.who = fmt::format("each warp, {} for all boxes of its CTA", box_taps * parts_);
  for (int lane = 0; lane < 32; ++lane) {
    const int filter = box_filter_of(lane, 0), unit = lane / 8 % 2;
    reads.address.push_back(swizzled(filter, unit));
    reads.plain_address.push_back(filter * chunk_bytes + unit * unit_bytes);
  }
  reads.count(1.0 * warps() * box_taps * parts_ * at_.m_tiles / box().count);
  return reads;
}

SharedMemoryMap WindowBoxMap::shared_memory() const {
  SharedMemoryMap map;
  map.kernel = kernel(), map.tile = tile();
  map.tiles = Index{box().count} * at_.n_tiles;
  map.layout = fmt::format(
      "pixels of up to 64 bytes, {} bytes apart, row after row of the box{}", box_pixel_bytes,
      box().phases > 1 ? fmt::format("; in a row all columns with one remainder by {} are together",
                                     box().phases)
                       : "");
  map.protects =
      "16 bytes after each pixel are for reading: ldmatrix takes 16 bytes of eight pixels at "
      "once, "
      "and pixels 64 bytes apart would share two places of four banks. 80 bytes apart, eight "
      "neighbours touch all 32; taps are the same pixels at another distance, which a swizzle "
      "would "
      "not allow";
  map.regions = regions();
  map.bytes = box().shared_bytes();
  map.accesses = {copies(), weight_copies(), pixel_reads(), weight_reads()};
  for (int number = 0; number < registers; ++number) {
    const BoxSumPlace at(0, number, pooled());
    auto row = std::find_if(map.accumulators.begin(), map.accumulators.end(),
                            [&](const AccumulatorRow& known) { return known.row == at.row; });
    if (row == map.accumulators.end())
      row = map.accumulators.insert(row, AccumulatorRow{0, 0, at.row, {}, {}});
    row->registers.push_back(number), row->columns.push_back(box_four(0, 0) + at.of_four);
  }
  map.columns_are = "filters";
  map.accumulator_order =
      "filters are read so that a lane's pairs from two products are four neighbours "
      "(box_filter_of); rows are those of its warp's first turn";
  for (const int lane : {0, 1, 4}) {
    const BoxSumPlace at(lane, 0, pooled());
    map.epilogue.push_back(
        fmt::format("lane {:>2} stores filters {:>2}-{:<2} of row {}{}: {} bytes", lane,
                    box_four(lane, 0), box_four(lane, 0) + 3, at.row,
                    pooled() ? " and the three after it, a window" : "", 4 * size_));
  }
  map.epilogue.emplace_back(
      pooled() ? "all four values of a window are in one thread; no shared memory is used"
               : "and of the rows 8, 16 and 24 further on; no shared memory is used");
  return map;
}

Pipeline WindowBoxMap::pipeline() const {
  const PipelineActor every{
      "every thread", tile_of_.threads(),
      "copies its part of the next box (cp.async), multiplies this one, turn by turn",
      "its own copies: cp.async.wait_group 1, all but those of the next box; then the others', by "
      "a "
      "barrier of the CTA"};
  // One box needs one slot: nothing is loaded under it.
  Pipeline pipe = ring_pipeline(
      2, box().bytes(), boxes_of_cta(), every,
      [&](Index step) { return fmt::format("box {}", step * at_.m_tiles); },
      [](Index step) {
        return step == 0 ? std::string(
                               "wait_group 1 and barriers: registers hold the weights, "
                               "slot 0 is there")
                         : fmt::format(
                               "a barrier: slot {} is free; wait_group 1, barrier: slot {} "
                               "is there",
                               (step - 1) % 2, step % 2);
      });
  pipe.kernel = kernel(), pipe.tile = tile();
  pipe.per = "a CTA, a box each";
  pipe.rings.front().name = "boxes", pipe.rings.front().slots = box().slots;
  pipe.notes = {
      "the weights come first, to where slot 1 is filled later, and before the previous kernel has "
      "ended; registers hold them for all boxes",
      fmt::format("a box is {} products of a warp's 32 rows by 16 filters in each turn, {} {}",
                  2 * 2 * box_taps * parts_, turns(), turns() == 1 ? "turn" : "turns"),
      "boxes are those of CTA 0"};
  return pipe;
}

}  // namespace convoy::inspect
