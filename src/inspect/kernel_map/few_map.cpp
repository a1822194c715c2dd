#include "inspect/kernel_map/few_map.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "cuda/sm90/shared_memory.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

namespace {

int swizzled_row(int byte) {
  return byte ^ ((byte >> 7 & 7) << 4);
}

}  // namespace

FewMap::FewMap(const Stage& stage, const FewLayout& layout, const std::string& machine)
    : KernelMap(stage, "few", few_tile_name(layout), machine),
      l_(layout),
      columns_(layout.tiles_x),
      rows_(layout.tiles_y),
      tile_w_(layout.out_w),
      tile_h_(layout.out_h / (stage.pool ? 2 : 1)),
      tiles_(few_tiles(stage, layout)),
      grid_(std::min<Index>(layout.grid, few_tiles(stage, layout))) {}

int FewMap::items() const {
  return l_.out_w * (l_.out_h / window()) * static_cast<int>(stage().k);
}
int FewMap::registers() const {
  if (l_.flat) return few_flat_columns / l_.columns / 2 * (l_.columns / 2);
  return (items() + few_consumers - 1) / few_consumers * window();
}

std::vector<MapFact> FewMap::facts() const {
  std::vector<MapFact> all;
  const auto add = [&](const char* name, std::string value, std::string note) {
    all.push_back({name, std::move(value), std::move(note)});
  };
  add("tile", fmt::format("{} x {}", l_.out_w, l_.out_h),
      l_.flat ? "a run of pixels of all images, one after the other"
              : "columns x rows of outputs before the pool, of all filters");
  add("box", fmt::format("{} x {}", l_.box_w, l_.box_h),
      fmt::format("pixels of x, in {} of {}: {}", l_.blocks == 1 ? "a block" : "blocks",
                  few_block_pixels, l_.blocks));
  add("tiles", fmt::format("{}", tiles_),
      fmt::format("on a grid of {} CTAs, up to {} each", grid_, tiles_a_cta()));
  add("CTA", "384 threads", "2 warpgroups that multiply, blocks of pixels in turn; 1 thread loads");
  add("product", fmt::format("{} x {}", few_block_pixels, l_.columns),
      fmt::format("pixels of a block by all {} taps of {} filters, the rest zeros: wgmma "
                  "m64n{}k16",
                  taps(), stage().k, l_.columns));
  add("iterations", fmt::format("{}", l_.chunks), "blocks of 64 channels");
  add("slots", fmt::format("{}", l_.slots),
      fmt::format("of {} bytes, a box of 64 channels{}", l_.slot_bytes,
                  l_.resident ? "; all weights stay beside them" : " and its weights"));
  add("shared memory", fmt::format("{} bytes", l_.shared_bytes), "of a CTA");
  if (l_.flat) {
    add("accumulators", fmt::format("{}", registers()),
        fmt::format("registers of a thread: d[{}][{}], which are outputs: a 1x1 has no other taps",
                    few_flat_columns / l_.columns / 2, l_.columns / 2));
    return all;
  }
  add("accumulators", fmt::format("{}", few_blocks / 2 * l_.columns / 2),
      fmt::format("registers of a thread: d[{}][{}], products of one tap each", few_blocks / 2,
                  l_.columns / 2));
  add("z", fmt::format("{} x {}", taps() * stage().k, l_.z_pitch),
      fmt::format("floats of shared memory: taps by pixels{}; an output is a sum of {} of them, at "
                  "shifted pixels",
                  l_.z_over_slots ? ", over the slots" : "", taps()));
  add("outputs", fmt::format("{}", items()),
      fmt::format("per tile: {} per thread, columns fastest, then rows, then filters",
                  (items() + few_consumers - 1) / few_consumers));
  return all;
}

std::string FewMap::order() const {
  return fmt::format("{}; CTA b takes tiles b, b + {}, ...",
                     l_.flat ? "along the pixels" : "columns fastest, then rows, then images",
                     grid_);
}
std::vector<TilePlace> FewMap::first_tiles(int count) const {
  std::vector<TilePlace> all;
  for (Index t = 0; t < std::min<Index>(count, tiles_); ++t) all.push_back(tile_at(t, 0));
  return all;
}
TilePlace FewMap::tile_at(Index x, Index y) const {
  if (y < 0 && (x < 0 || x >= grid_))
    throw Error(fmt::format("explain: --block {}: the launch has CTAs 0 to {}", x, grid_ - 1));
  if (x < 0 || x >= tiles_ || y > 0)
    throw Error(fmt::format("explain: --block {},{}: there are {} x 1 tiles, numbered from 0", x, y,
                            tiles_));
  return {x, 0, x % grid_, x / grid_};
}
Place FewMap::place(const TilePlace& tile) const {
  return few_place(l_, columns_, rows_, static_cast<int>(tile.x));
}

FewMap::InTile FewMap::in_tile(const OutputIndex& output) const {
  expect_output(stage(), output);
  if (l_.flat) {
    const Index pixel = (output.n * stage().h + output.p) * stage().w + output.q;
    return {pixel / l_.out_w, static_cast<int>(pixel % l_.out_w), 0};
  }
  const Shapes shapes = shapes_of(stage());
  if (output.p >= shapes.out_h * window() || output.q >= shapes.out_w * window())
    throw Error(
        fmt::format("explain: the pool takes no window of (p {}, q {}), and the kernel does "
                    "not compute it",
                    output.p, output.q));
  const Index tile =
      (output.n * l_.tiles_y + output.p / l_.out_h) * l_.tiles_x + output.q / l_.out_w;
  return {tile, static_cast<int>(output.q % l_.out_w), static_cast<int>(output.p % l_.out_h)};
}

Accumulator FewMap::accumulator(const OutputIndex& output) const {
  const InTile at = in_tile(output);
  const int k = static_cast<int>(output.k);
  Accumulator a;
  a.tile = tile_at(at.tile, 0);
  a.row = at.y * l_.out_w + at.x, a.column = k;
  if (l_.flat) {
    const int block = at.x / few_block_pixels, pixel = at.x % few_block_pixels;
    const int i = k / 8 * 2 + k % 2, reg = few_register(i) + pixel / 8 % 2 * 2;
    a.warp = block % 2 * 4 + pixel / 16;
    a.lane = pixel % 8 * 4 + k % 8 / 2;
    a.number = block / 2 * (l_.columns / 2) + reg;
    a.name = fmt::format("d[{}][{}]", block / 2, reg);
    a.stored = "by the same lane, with the next filter if y takes two channels at a time";
    a.thread = 32 * a.warp + a.lane;
    return a;
  }
  const int below = at.y % window();
  const int item = (k * (l_.out_h / window()) + at.y / window()) * l_.out_w + at.x;
  a.thread = item % few_consumers;
  a.warp = a.thread / 32, a.lane = a.thread % 32;
  a.number = item / few_consumers * window() + below;
  a.name = fmt::format("the sum of {} taps, item {} of the tile", taps(), item);
  if (window() == 2) a.name += fmt::format(", row {} of its window", below);
  a.stored = window() == 2
                 ? "by the lane of the window's left column, which has the largest of its "
                   "own two rows and of its neighbour's"
                 : "by the same lane";
  return a;
}

std::optional<OutputIndex> FewMap::output_of(const TilePlace& tile, int thread, int number) const {
  if (thread < 0 || thread >= 384)
    throw Error(fmt::format("explain: --thread {}: a CTA of few has threads 0 to 383", thread));
  if (thread >= few_consumers)
    throw Error(
        fmt::format("explain: thread {} is of the producer's warpgroup and has no outputs: "
                    "threads 0 to {} have",
                    thread, few_consumers - 1));
  if (number < 0 || number >= registers())
    throw Error(
        fmt::format("explain: register {}: a thread has outputs 0 to {}", number, registers() - 1));
  const Place from = place(tile);
  if (l_.flat) {
    const int of_block = l_.columns / 2, reg = number % of_block, lane = thread % 32;
    const int block = few_block(number / of_block, thread / 128);
    const Index pixel = Index{from.x} + block * few_block_pixels +
                        few_pixel(static_cast<unsigned>(thread), lane) + reg / 2 % 2 * 8;
    const int k = few_tap(lane, reg / 4 * 2 + reg % 2);
    const Index image = stage().h * stage().w;
    if (block >= l_.blocks || k >= stage().k || pixel >= stage().n * image) return std::nullopt;
    return OutputIndex{pixel / image, pixel % image / stage().w, pixel % stage().w, k};
  }
  const int item = number / window() * few_consumers + thread;
  if (item >= items()) return std::nullopt;
  int k = item;  // as store_outputs of the kernel
  const int x = tile_w_.reduce(k), y = tile_h_.reduce(k);
  const Shapes shapes = shapes_of(stage());
  const Index p = from.y + Index{y} * window() + number % window(), q = from.x + x;
  if (p >= shapes.out_h * window() || q >= shapes.out_w * window()) return std::nullopt;
  return OutputIndex{from.n, p, q, k};
}

int FewMap::pixel_of(const InTile& at, const TapIndex& tap) const {
  return (at.y + static_cast<int>(tap.r)) * l_.box_w + at.x + static_cast<int>(tap.s);
}
int FewMap::slot_begin(int slot) const {
  return (l_.resident ? l_.chunks * l_.w_bytes : 0) + slot * l_.slot_bytes;
}

OperandPlace FewMap::operand(const OutputIndex& output, const TapIndex& tap) const {
  const InTile at = in_tile(output);
  const TilePlace tile = tile_at(at.tile, 0);
  const int pixel = pixel_of(at, tap), block = pixel / few_block_pixels;
  const int column = static_cast<int>((output.k * stage().r + tap.r) * stage().s + tap.s);
  OperandPlace one;
  one.step = tap.c / row_channels;
  one.slot = static_cast<int>((tile.turn * l_.chunks + one.step) % l_.slots);
  one.in_slot =
      swizzled_row(pixel * row_bytes + static_cast<int>(tap.c % row_channels) * value_bytes);
  one.in_shared = Index{slot_begin(one.slot)} + one.in_slot;
  one.brought = fmt::format("TMA, load {} of the tile, pixel {} of its box", one.step, pixel);
  one.read =
      fmt::format("wgmma of warpgroup {}, row {} of its block {}, for column {}{}", block % 2,
                  pixel % few_block_pixels, block / 2, column,
                  l_.flat ? ""
                          : fmt::format(": with all channels it is z[{}][{}], one of {} that "
                                        "the output is the sum of",
                                        column, pixel, taps()));
  return one;
}

InputElement FewMap::in_slot(const TilePlace& tile, Index step, int byte) const {
  const Stage& s = stage();
  const int logical = swizzled_row(byte), row = logical / row_bytes;
  InputElement x;
  x.bytes = value_bytes;
  if (row >= l_.box_w * l_.box_h || step >= l_.chunks) return x;
  const Place from = place(tile);
  const int right = row % l_.box_w, down = row / l_.box_w;
  x.c = step * row_channels + logical % row_bytes / value_bytes;
  if (l_.flat) {
    const Index pixel = Index{from.x} + right, image = s.h * s.w;
    x.n = pixel / image, x.h = pixel % image / s.w, x.w = pixel % s.w;
    x.inside = x.n < s.n && x.c < s.c;
  } else {
    x.n = from.n, x.h = from.y - s.pad.top + down, x.w = from.x - s.pad.left + right;
    x.inside = x.h >= 0 && x.h < s.h && x.w >= 0 && x.w < s.w && x.c < s.c;
  }
  if (x.inside) x.byte = x_byte(s, x);
  return x;
}

ThreadStep FewMap::thread_step(const TilePlace& tile, int thread, Index step) const {
  if (step < 0 || step >= l_.chunks)
    throw Error(fmt::format("explain: --step {}: a tile has steps 0 to {}", step, l_.chunks - 1));
  const int slot = static_cast<int>((tile.turn * l_.chunks + step) % l_.slots);
  ThreadStep what;
  if (thread >= few_consumers && thread < 384) {
    const InputElement first = in_slot(tile, step, 0);
    what.role = thread == few_consumers ? "producer" : "in the producer's warpgroup: does nothing";
    what.heading = {"load", "box from (n,h,w)", "channels", "slot"};
    if (thread == few_consumers)
      what.rows.push_back({fmt::format("{}", step),
                           fmt::format("({},{},{})", first.n, first.h, first.w),
                           fmt::format("{}-{}", step * row_channels, (step + 1) * row_channels - 1),
                           fmt::format("{}", slot)});
    return what;
  }
  static_cast<void>(output_of(tile, thread, 0));  // throws for a thread that there is not
  const int g = thread / 128;
  what.role =
      fmt::format("consumer: warpgroup {}, its warp {}, lane {}", g, thread / 32 % 4, thread % 32);
  what.heading = {"block", "pixels of the box", "descriptor", "first reads (n,h,w)"};
  for (int b = 0; few_block(b, g) < l_.blocks; ++b) {
    const int block = few_block(b, g), first = block * few_block_pixels;
    const InputElement x = in_slot(tile, step, swizzled_row(first * row_bytes));
    what.rows.push_back(
        {fmt::format("{}", block), fmt::format("{}-{}", first, first + few_block_pixels - 1),
         fmt::format("{}", slot_begin(slot) + first * row_bytes),
         fmt::format("({},{},{}) {}", x.n, x.h, x.w, x.inside ? "inside" : "zeros")});
  }
  for (int number = 0; number < std::min(4, registers()); ++number) {
    const auto output = output_of(tile, thread, number);
    const std::string name =
        l_.flat ? fmt::format("d[0][{}]", number) : fmt::format("its sum {}", number);
    what.notes.push_back(output ? fmt::format("{}: output (n {}, p {}, q {}, k {})", name,
                                              output->n, output->p, output->q, output->k)
                                : name + ": outside the output");
  }
  return what;
}

std::unique_ptr<KernelMap> map_few(const Stage& stage, const Machine& machine,
                                   const std::string& tile) {
  const cuda::DeviceFacts device = cuda::facts_of(machine);
  expect_served("few", stage, few_refusals(stage, device));
  const FewLayout layout = few_layout(stage, device);
  if (!tile.empty() && tile != few_tile_name(layout))
    throw Error(fmt::format("explain: --tile \"{}\": few has for this stage {}", tile,
                            few_tile_name(layout)));
  return std::make_unique<FewMap>(stage, layout, machine.name);
}

}  // namespace convoy::inspect
