// Shared memory and pipeline of `halo`.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/sm90/staged.hpp"
#include "inspect/kernel_map/halo_map.hpp"
#include "inspect/kernel_map/ring_pipeline.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

namespace {

/// How often a warpgroup's accumulators are written, as Fragments in halo.cuh counts.
struct Staging {
  int per_instruction = 0, count = 0, parts = 1, pooled = 0;
  bool images = false, pool = false;

  Staging(const HaloTile& tile, bool has_pool)
      : pooled(tile.instruction_n() / 16), images(tile.inner == Inner::images), pool(has_pool) {
    const int groups = tile.instruction_n() / 8, instructions = tile.instructions();
    per_instruction = !pool ? groups : images ? pooled : (pooled + 1) / 2;
    count = pool && images ? instructions / 2 * pooled : instructions * per_instruction;
    if (!pool) parts = instructions * store_pieces(tile.instruction_n());
  }
  /// Row of the staged tile for column c of fragment f.
  int row(const HaloLayout& l, int f, int c) const {
    if (!pool) return 8 * f + c;
    const int i = f / per_instruction, j = f % per_instruction;
    return images ? staged_row_of_images(l, i, j, c) : staged_row_of_pixels(l, i, j, c, pooled);
  }
};

}  // namespace

std::vector<SharedRegion> HaloMap::regions() const {
  std::vector<SharedRegion> regions;
  const auto region = [&](std::string name, int begin, int bytes, std::string what) {
    regions.push_back({std::move(name), begin, bytes, std::move(what)});
  };
  for (int slot = 0; slot < l_.x_slots; ++slot)
    region(fmt::format("pixels, slot {}", slot), slot * l_.x_slot, l_.x_slot,
           fmt::format("{} x {} x {} x {} pixels of 128 bytes{}", l_.slot_chunks * l_.slot_boxes,
                       l_.box_n, l_.box_h, l_.box_w,
                       l_.time_steps > 1 ? fmt::format(", in {} time steps", l_.time_steps) : ""));
  for (int slot = 0; slot < l_.w_slots; ++slot)
    region(fmt::format("weights, slot {}", slot), l_.w_offset + slot * l_.w_slot, l_.w_slot,
           fmt::format("{} taps of {} filters of 128 bytes", l_.slab_taps, l_.cta_channels));
  for (int buffer = 0; buffer < 2 * l_.store_buffers; ++buffer)
    region(fmt::format("staged output, warpgroup {}", buffer / l_.store_buffers),
           l_.staging_offset + buffer * l_.staging, l_.staging,
           fmt::format("{} pixels of {} bytes", l_.stored_pixels,
                       sums()          ? 256
                       : tile_of_.half ? 64
                                       : 128));
  region("barriers", l_.barrier_offset, barrier_bytes, "full and empty of each slot, and turns");
  return regions;
}

SharedAccess HaloMap::pixel_reads() const {
  SharedAccess read;
  read.name = "read pixels";
  read.instruction = "wgmma descriptor";
  read.who = "the Tensor Cores: eight rows, the first k16 step's first half";
  read.counted = false;
  for (int row = 0; row < 8; ++row) {
    const int byte = row_byte(0, 0, {0, row});
    read.address.push_back(swizzled128(byte)), read.plain_address.push_back(byte);
  }
  read.use = bank_use(read.address, 16), read.plain = bank_use(read.plain_address, 16);
  return read;
}

namespace {

/// What a warp writes of fragments f and f + 1 of the `count` of a part, by one instruction.
SharedAccess fragment_write(const HaloLayout& l, const Staging& staging, int warp, int f,
                            int count) {
  SharedAccess one;
  for (int lane = 0; lane < 32; ++lane) {
    const StagedLane mine(lane, warp);
    const int fragment = lane < 16 ? f : f + 1;
    if (fragment >= count) {  // the last one by itself: stmatrix.x2
      one.address.push_back(-1), one.plain_address.push_back(-1);
      continue;
    }
    const int row = staging.row(l, fragment, mine.column);
    one.address.push_back(static_cast<int>(l.half ? staged_at<32>(0, row, mine.unit)
                                                  : staged_at<64>(0, row, mine.unit)));
    one.plain_address.push_back(row * (l.half ? 64 : 128) + mine.unit * 16);
  }
  one.use = bank_use(one.address, 16), one.plain = bank_use(one.plain_address, 16);
  return one;
}

}  // namespace

std::string HaloMap::stored_text(int warpgroup) const {
  if (sums())
    return fmt::format(
        "by st.shared to warpgroup {}'s staging buffer, two rows of 32 channels a pixel, and from "
        "there by two TMA stores, in f32",
        warpgroup);
  return fmt::format(
      "by stmatrix.trans to warpgroup {}'s staging buffer, a row of {} channels a pixel, and from "
      "there by one TMA store",
      warpgroup, tile_of_.half ? 32 : 64);
}

SharedAccess HaloMap::result_writes() const {
  const Staging staging(tile_of_, stage().pool.has_value());
  const int of_part = staging.count / staging.parts;
  SharedAccess write;
  write.name = "write results";
  write.instruction = "stmatrix.x4.trans";
  write.who =
      fmt::format("each consumer warp{}, {} a tile", tile_of_.half ? " of the first two" : "",
                  staging.parts * ((of_part + 1) / 2) * held());
  write.store = true;
  const int warps = l_.half ? 2 : 4, groups = l_.pingpong ? 1 : 2;
  const double times = static_cast<double>(staging.parts) * groups * static_cast<double>(held());
  for (int warp = 0; warp < warps; ++warp)
    for (int f = 0; f < of_part; f += 2)
      write.add(fragment_write(l_, staging, warp, f, of_part), times);
  return write;
}

std::vector<AccumulatorRow> HaloMap::accumulator_rows() const {
  std::vector<AccumulatorRow> rows;
  for (const int half : {0, 1}) {
    AccumulatorRow row{0, 0, 8 * half, {}, {}};
    for (int i = 0; i < tile_of_.instructions(); ++i)
      for (int reg = 2 * half; reg < tile_of_.instruction_n() / 2; reg += reg % 2 == 0 ? 1 : 3) {
        row.registers.push_back(i * (tile_of_.instruction_n() / 2) + reg);
        row.columns.push_back(i * tile_of_.instruction_n() + reg / 4 * 8 + reg % 2);
      }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> HaloMap::epilogue_text() const {
  const int parts = Staging(tile_of_, stage().pool.has_value()).parts;
  return {
      fmt::format(
          "a warp writes two 8 x 8 matrices of channels x pixels for each of its two groups "
          "of eight channels, {}rounded, in one stmatrix.x4.trans",
          stage().pool ? "pooled and " : ""),
      fmt::format("the staged part is {} pixels of {} neighbouring channels; one thread stores it "
                  "by TMA, in {} {} a tile",
                  l_.stored_pixels, l_.half ? 32 : 64, parts, parts == 1 ? "part" : "parts"),
      stage().pool ? "a window's four values are in one thread's registers: the pool moves nothing"
                   : "without a pool the tile is stored in parts, so that its staging leaves room "
                     "for the rings"};
}

SharedMemoryMap HaloMap::shared_memory() const {
  SharedMemoryMap map;
  map.kernel = kernel(), map.tile = tile();
  map.bytes = l_.shared_bytes;
  map.tiles = Index{places_} * turns_;
  map.layout =
      "rows of 128 bytes, 64 channels of a pixel or filter: eight units of 16 bytes, of which unit "
      "u of row r is in place u ^ (r & 7). TMA writes it and wgmma reads it in this way";
  map.protects =
      "the swizzle is for reading: wgmma takes 16 bytes of eight rows at once, and rows 128 bytes "
      "apart would all be in the same four banks. No gap is needed between rows or boxes";
  map.regions = regions();
  map.accesses = {pixel_reads(), sums() ? sums_writes() : result_writes()};
  map.accumulators = accumulator_rows();
  map.accumulator_order =
      "rows are channels, columns pixels (M = channels): a lane has two pixels of eight, so that "
      "registers of a row come in pairs, four apart" +
      std::string(sums() ? "" : "; stmatrix.trans turns them into rows of channels");
  map.epilogue = sums() ? sums_epilogue_text() : epilogue_text();
  return map;
}

std::vector<PipelineActor> HaloMap::actors() const {
  std::vector<PipelineActor> actors;
  actors.reserve(6);
  for (int i = 0; i < 2; ++i)
    actors.push_back(
        {fmt::format("producer {} of pixels", i), 1,
         fmt::format("asks TMA for load {}, {}, ... of pixels", i, i + 2),
         "an empty slot (all consumers have given it back); before its first load also "
         "for the end of the previous kernel"});
  for (int i = 0; i < 2; ++i)
    actors.push_back({fmt::format("producer {} of weights", i), 1,
                      fmt::format("asks TMA for slab {}, {}, ...", i, i + 2),
                      l_.resident ? "nothing: weights are loaded once"
                                  : "an empty slot; not for the end of the previous kernel"});
  for (int g = 0; g < 2; ++g)
    actors.push_back(
        {fmt::format("warpgroup {}", g), 128,
         l_.pingpong
             ? "multiplies every second tile of the CTA, then stores it under the other's math" +
                   neuron_does()
             : "multiplies its half of each tile, then stores it" + neuron_does(),
         l_.pingpong ? "a full slot of pixels and of weights; the other's turn to end"
                     : "a full slot of pixels and of weights"});
  return actors;
}

/// Of the CTA's loads of pixels, in order.
PipelineLoad HaloMap::pixel_load(Index load) const {
  const Index in_tile = load % l_.slots_a_tile(), groups = l_.boxes / l_.slot_boxes;
  const Index chunk = in_tile / groups * l_.slot_chunks;
  std::string what = fmt::format("channels {}-{}", chunk * row_channels,
                                 (chunk + l_.slot_chunks) * row_channels - 1);
  if (l_.boxes > 1 && l_.slot_boxes == 1) what += fmt::format(", box {}", in_tile % groups);
  if (load >= l_.slots_a_tile()) what += " of the next tile";
  return {0, load, static_cast<int>(load % l_.x_slots), what};
}

PipelineLoad HaloMap::weight_load(Index slab) const {
  const Index in_tile = slab % l_.slabs_a_tile();
  const int tap = first_tap_of(in_tile);
  std::string what =
      l_.slab_taps == 1
          ? fmt::format("tap {} of channels {}-{}", tap_text(tap), in_tile / l_.taps * row_channels,
                        (in_tile / l_.taps + 1) * row_channels - 1)
          : fmt::format("{} taps from {}", l_.slab_taps, tap_text(tap));
  if (slab >= l_.slabs_a_tile()) what += " of the next tile";
  return {1, slab, static_cast<int>(slab % l_.w_slots), what};
}

/// Loads before the first product: of `loads` in all that are worth a line.
std::vector<PipelineLine> HaloMap::prologue(const Loads& loads) const {
  PipelineLine first;
  for (Index i = 0; i < std::min<Index>(l_.w_slots, std::min<Index>(loads.weights, l_.early_slabs));
       ++i)
    first.loads.push_back(weight_load(i));
  first.waits = "weights come first: they need not wait for the end of the previous kernel";
  PipelineLine second;
  for (Index i = 0; i < std::min<Index>(l_.x_slots, loads.pixels); ++i)
    second.loads.push_back(pixel_load(i));
  for (Index i = l_.early_slabs; i < std::min<Index>(l_.w_slots, loads.weights); ++i)
    second.loads.push_back(weight_load(i));
  second.waits = l_.early_slabs < l_.w_slots
                     ? "the end of the previous kernel; further weights, the first pixels"
                     : "the end of the previous kernel";
  return {first, second};
}

PipelineLine HaloMap::line_of_step(Index step, const Loads& loads) const {
  PipelineLine line;
  line.step = step;
  line.phase = PipelinePhase::loop;
  line.math_slots = {slot_of_step(step), static_cast<int>(step % l_.w_slots)};
  const bool opens = step == 0 || load_of_step(step) != load_of_step(step - 1);
  line.waits = fmt::format("{}weights {} full",
                           opens ? fmt::format("pixels {} and ", slot_of_step(step)) : "",
                           step % l_.w_slots);
  // The slab before is done once this one's first tap is under way: its slots go back.
  if (step > 0) {
    const Index freed = step - 1 + l_.w_slots;
    if (!l_.resident && freed < loads.weights) line.loads.push_back(weight_load(freed));
    if (opens) {
      const Index next = load_of_step(step - 1) + l_.x_slots;
      if (next < loads.pixels) line.loads.push_back(pixel_load(next));
    }
  }
  if (line.loads.empty()) line.phase = PipelinePhase::drain;
  return line;
}

Pipeline HaloMap::pipeline() const {
  Pipeline pipe;
  pipe.kernel = kernel(), pipe.tile = tile();
  pipe.steps = l_.slabs_a_tile();
  pipe.tiles = (tiles_ + grid_ - 1) / grid_;
  const Index boxes = l_.slots_a_tile();
  pipe.rings = {{"pixels", l_.x_slots, l_.x_slot, boxes},
                {"weights", l_.w_slots, l_.w_slot, pipe.steps}};
  pipe.actors = actors();
  const bool more = pipe.tiles > 1;
  const Loads loads{more ? 2 * boxes : boxes, more && !l_.resident ? 2 * pipe.steps : pipe.steps};
  pipe.lines = prologue(loads);
  pipe.prologue = static_cast<int>(std::min<Index>(l_.x_slots, loads.pixels));
  const int slots = std::max(l_.x_slots, l_.w_slots);
  for (Index step = 0; step < pipe.steps; ++step) {
    if (!left_out(step, pipe.steps, slots))
      pipe.lines.push_back(line_of_step(step, loads));
    else if (pipe.left_out++ == 0)
      pipe.left_out_at = pipe.lines.size();
  }
  pipe.notes = {
      "a slot goes back one slab after its last read, when the next slab's first tap is under way: "
      "the Tensor Cores never wait for it",
      l_.pingpong
          ? "ping-pong: both warpgroups take slots in the order of loading, each leaves out "
            "those of the other's tile"
          : "both warpgroups read every slot: it is empty when eight warps have given it back",
      fmt::format("each CTA takes up to {} tiles; the rings do not stop between them", pipe.tiles)};
  return pipe;
}

}  // namespace convoy::inspect
