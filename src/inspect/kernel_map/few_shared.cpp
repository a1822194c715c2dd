// Shared memory and pipeline of `few`.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/sm90/shared_memory.hpp"
#include "inspect/kernel_map/few_map.hpp"
#include "inspect/kernel_map/ring_pipeline.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

namespace {

constexpr int pad_floats = 4;  // of z_pitch beyond whole blocks

/// Adds a warp's access of words at these places, `times` of it; the first is what is shown.
void add_words(SharedAccess& access, const std::vector<int>& words, const std::vector<int>& plain,
               double times) {
  SharedAccess one;
  one.width = access.width;
  for (std::size_t i = 0; i < words.size(); ++i) {
    one.address.push_back(words[i] < 0 ? -1 : 4 * words[i]);
    one.plain_address.push_back(plain[i] < 0 ? -1 : 4 * plain[i]);
  }
  one.count(times);
  if (access.address.empty()) {
    access.address = one.address, access.plain_address = one.plain_address;
    access.use = one.use, access.plain = one.plain;
  }
  access.instructions += one.instructions, access.wavefronts += one.wavefronts;
  access.conflicts += one.conflicts, access.plain_conflicts += one.plain_conflicts;
}

}  // namespace

std::vector<SharedRegion> FewMap::regions() const {
  std::vector<SharedRegion> regions;
  if (l_.resident)
    regions.push_back({"weights", 0, l_.chunks * l_.w_bytes,
                       fmt::format("{} taps of {} chunks, which stay", l_.columns, l_.chunks)});
  for (int slot = 0; slot < l_.slots; ++slot)
    regions.push_back({fmt::format("slot {}", slot), slot_begin(slot), l_.slot_bytes,
                       fmt::format("{} x {} pixels of 128 bytes{}", l_.box_w, l_.box_h,
                                   l_.resident ? "" : ", and weights")});
  if (!l_.flat)
    regions.push_back({l_.z_over_slots ? "z, over the slots" : "z",
                       l_.z_over_slots ? slot_begin(0) : slot_begin(l_.slots),
                       static_cast<int>(stage().k) * taps() * l_.z_pitch * 4,
                       fmt::format("{} taps by {} floats", taps() * stage().k, l_.z_pitch)});
  regions.push_back(
      {"barriers", l_.barriers, 8 * (2 * l_.slots + 1), "full and empty of each slot"});
  return regions;
}

SharedAccess FewMap::z_writes() const {
  SharedAccess write;
  write.name = "write z", write.instruction = "STS", write.store = true, write.width = 4;
  write.who = "each consumer warp, two pixels of every four taps at a time";
  const int columns = static_cast<int>(stage().k) * taps(), plain_pitch = l_.z_pitch - pad_floats;
  for (unsigned warp = 0; warp < 4; ++warp)
    for (int i = 0; i < l_.columns / 4; ++i) {
      std::vector<int> words, plain;
      for (int lane = 0; lane < 32; ++lane) {
        const int tap = few_tap(lane, i),
                  pixel =
                      static_cast<int>(few_pixel(32 * warp + static_cast<unsigned>(lane), lane));
        words.push_back(tap < columns ? tap * l_.z_pitch + pixel : -1);
        plain.push_back(tap < columns ? tap * plain_pitch + pixel : -1);
      }
      if (*std::max_element(words.begin(), words.end()) >= 0)
        add_words(write, words, plain, 2.0 * l_.blocks);
    }
  return write;
}

int FewMap::z_of(int item) const {
  int k = item;  // as store_outputs of the kernel
  const int x = tile_w_.reduce(k), y = tile_h_.reduce(k);
  return k * taps() * l_.z_pitch + y * window() * l_.box_w + x;
}
SharedAccess FewMap::z_reads() const {
  SharedAccess read;
  read.name = "read z", read.instruction = "LDS", read.width = 4;
  read.who = fmt::format("each consumer warp, {} for each of its outputs", taps() * window());
  // All warps of a round go through it; a lane without an item reads those of the first.
  const int rounds = (items() + few_consumers - 1) / few_consumers;
  for (int first = 0; first < rounds * few_consumers; first += 32) {
    std::vector<int> words;
    words.reserve(32);
    for (int lane = 0; lane < 32; ++lane)
      words.push_back(z_of(first + lane < items() ? first + lane : 0));
    add_words(read, words, words, 1.0 * taps() * window());  // taps shift all lanes alike
  }
  return read;
}

SharedMemoryMap FewMap::shared_memory() const {
  SharedMemoryMap map;
  map.kernel = kernel(), map.tile = tile();
  map.bytes = l_.shared_bytes, map.tiles = tiles_;
  map.layout =
      "rows of 128 bytes, 64 channels of a pixel: eight units of 16 bytes, of which unit u of row "
      "r is in place u ^ (r & 7). TMA writes it and wgmma reads it in this way";
  map.protects = l_.flat ? "the swizzle is for reading: wgmma takes 16 bytes of eight rows at once"
                         : fmt::format(
                               "the swizzle is for reading; in z {} floats after each tap's pixels "
                               "are for writing: a warp stores eight pixels of four taps at once",
                               pad_floats);
  map.regions = regions();
  SharedAccess pixels;
  pixels.name = "read pixels", pixels.instruction = "wgmma descriptor";
  pixels.who = "the Tensor Cores: eight rows, the first k16 step's first half";
  pixels.counted = false;
  for (int row = 0; row < 8; ++row) {
    pixels.address.push_back(row * row_bytes ^ (row << 4));
    pixels.plain_address.push_back(row * row_bytes);
  }
  pixels.count(0);
  map.accesses = {pixels};
  if (!l_.flat) map.accesses.insert(map.accesses.end(), {z_writes(), z_reads()});
  const int of_block = l_.columns / 2;
  for (const int half : {0, 1}) {
    AccumulatorRow row{0, 0, 8 * half, {}, {}};
    for (int i = 0; i < of_block / 2; ++i) {
      row.registers.push_back(few_register(i) + 2 * half);
      row.columns.push_back(few_tap(0, i));
    }
    map.accumulators.push_back(std::move(row));
  }
  map.accumulator_order =
      "rows are pixels of a block, columns the taps of all filters: r, s fastest, then filters";
  if (l_.flat)
    map.epilogue = {
        "a column is a filter: products go from registers to y, two channels at a time if y takes "
        "them"};
  else
    map.epilogue = {
        fmt::format("products go to z; then a thread adds {} of them, {} columns of a "
                    "tile's row side by side, and stores one value",
                    taps(), l_.out_w)};
  return map;
}

Pipeline FewMap::pipeline() const {
  Pipeline pipe;
  pipe.kernel = kernel(), pipe.tile = tile();
  pipe.steps = l_.chunks, pipe.tiles = tiles_a_cta();
  pipe.rings = {
      {l_.resident ? "pixels" : "pixels and weights", l_.slots, l_.slot_bytes, l_.chunks}};
  pipe.actors = {{"producer", 1, "asks TMA for each block of 64 channels",
                  "an empty slot (eight warps have given it back); before its first load also for "
                  "the end of the previous kernel"},
                 {"warpgroups 0 and 1", few_consumers,
                  l_.flat ? "multiply their blocks of pixels, then store outputs"
                          : "multiply their blocks of pixels; then z, and the sums of taps",
                  l_.flat ? "a full slot" : "a full slot; around z for each other"}};
  // Over the slots z leaves none to the next tile.
  const Index loads = pipe.tiles > 1 && !l_.z_over_slots ? 2 * l_.chunks : l_.chunks;
  const auto load = [&](Index number) {
    const Index chunk = number % l_.chunks;
    return PipelineLoad{
        0, number, static_cast<int>(number % l_.slots),
        fmt::format("channels {}-{}{}", chunk * row_channels, (chunk + 1) * row_channels - 1,
                    number >= l_.chunks ? " of the next tile" : "")};
  };
  PipelineLine first;
  for (Index i = 0; i < std::min<Index>(l_.slots, loads); ++i) first.loads.push_back(load(i));
  first.waits = "the end of the previous kernel";
  pipe.prologue = static_cast<int>(first.loads.size());
  pipe.lines.push_back(std::move(first));
  for (Index step = 0; step < l_.chunks; ++step) {
    if (left_out(step, l_.chunks, l_.slots)) {
      if (pipe.left_out++ == 0) pipe.left_out_at = pipe.lines.size();
      continue;
    }
    PipelineLine line;
    line.step = step;
    line.math_slots = {static_cast<int>(step % l_.slots)};
    const Index freed = step - 1 + l_.slots;
    if (step > 0 && freed < loads) line.loads.push_back(load(freed));
    line.phase = line.loads.empty() ? PipelinePhase::drain : PipelinePhase::loop;
    if (step + 1 < l_.chunks) line.waits = fmt::format("slot {} is full", (step + 1) % l_.slots);
    pipe.lines.push_back(std::move(line));
  }
  pipe.notes = {"a slot goes back as soon as its products are done",
                l_.z_over_slots
                    ? "z uses the memory of the slots, for lack of room: a tile's loads wait for "
                      "the tile before"
                    : fmt::format("each CTA takes up to {} tiles; the ring does not stop between "
                                  "them",
                                  pipe.tiles)};
  return pipe;
}

}  // namespace convoy::inspect
