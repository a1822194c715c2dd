// What a thread of `halo` does in a step.
#include <fmt/core.h>

#include "convoy/error.hpp"
#include "inspect/kernel_map/halo_map.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

ThreadStep HaloMap::pixels_step(const TilePlace& tile, int number, Index step) const {
  const Index load = load_of_step(step);
  ThreadStep what;
  what.role = fmt::format("producer {} of pixels", number);
  what.heading = {"load", "box of taps", "chunk", "TMA coordinates", "pixels (n,h,w) from", "slot"};
  const SlotLoads loads = loads_of(tile, load);
  const int of_box = l_.slot_chunks / l_.load_chunks;
  for (int i = 0; const Box& at : loads.boxes) {
    const InputElement x = in_box(at, 0, 0);
    what.rows.push_back({fmt::format("{}", load), fmt::format("{}", loads.first_box + i / of_box),
                         fmt::format("{}", loads.first_chunk + i % of_box * l_.load_chunks),
                         fmt::format("({}, {}, {}, {}, {})", at.c0, at.c1, at.c2, at.c3, at.c4),
                         fmt::format("({},{},{})", x.n, x.h, x.w),
                         fmt::format("{}", load % l_.x_slots)});
    ++i;
  }
  what.notes.push_back(
      fmt::format("load {} of the tile is that of producer {}; it waits until all consumers have "
                  "given slot {} back, and expects {} bytes",
                  load, load % 2, load % l_.x_slots, l_.x_bytes));
  return what;
}

ThreadStep HaloMap::weights_step(const TilePlace& tile, int number, Index step) const {
  ThreadStep what;
  what.role = fmt::format("producer {} of weights", number);
  what.heading = {"slab", "taps", "TMA coordinates", "slot"};
  std::string taps;
  for (int t = 0; t < l_.slab_taps; ++t) taps += tap_text(first_tap_of(step) + t);
  what.rows.push_back({fmt::format("{}", step), taps,
                       fmt::format("(0, {}, {})", place(tile).k, step * l_.slab_taps),
                       fmt::format("{}", step % l_.w_slots)});
  what.notes.push_back(
      fmt::format("slab {} is that of producer {} in a CTA's first tile", step, step % 2));
  return what;
}

ThreadStep HaloMap::consumer_step(const TilePlace& tile, int thread, Index step) const {
  const int g = thread / 128;
  ThreadStep what;
  what.role =
      fmt::format("consumer: warpgroup {}, its warp {}, lane {}", g, thread / 32 % 4, thread % 32);
  const int in_tile = static_cast<int>(tile.t % l_.time_steps), column = 8 * in_tile;
  what.heading = {"tap", "descriptor of weights", "descriptor of pixels",
                  fmt::format("column {} reads (n,h,w)", column)};
  const int slab = static_cast<int>(step % l_.w_slots) * l_.w_slot;
  for (int t = 0; t < l_.slab_taps; ++t) {
    const int tap = first_tap_of(step) + t;
    const int pixels = row_byte(g, tap, {0, 0});
    const InputElement x = in_slot(tile, step, swizzled128(row_byte(g, tap, {0, column})));
    what.rows.push_back(
        {tap_text(tap),
         fmt::format("{}", l_.w_offset + slab + t * l_.cta_channels * row_bytes +
                               g * l_.warpgroup_channels * row_bytes),
         fmt::format("{}", slot_of_step(step) * l_.x_slot + pixels),
         fmt::format("({},{},{}) {}", x.n, x.h, x.w, x.inside ? "inside" : "padding")});
  }
  what.notes.push_back(fmt::format(
      "descriptors: bytes of the CTA's shared memory; groups of 8 columns are {} bytes apart, "
      "instructions {}, and each k16 step is 32 bytes on",
      l_.group_stride, l_.instruction_stride));
  if (l_.pingpong && g != tile.turn % 2) {
    what.notes.emplace_back("ping-pong: this tile is the other warpgroup's");
    return what;
  }
  for (const int of_step : {0, 1, 2, 3, 4, 5}) {
    const int number = (of_step / 4 * l_.time_steps + in_tile) * 4 + of_step % 4;
    if (number >= tile_of_.instruction_n() * tile_of_.instructions() / 2) break;
    const auto output = output_of(tile, thread, number);
    what.notes.push_back(output ? fmt::format("d[0][{}]: output (n {}, p {}, q {}, k {})", number,
                                              output->n, output->p, output->q, output->k)
                                : fmt::format("d[0][{}]: outside the output", number));
  }
  if (neuron())
    for (std::string& note : neuron_notes(tile)) what.notes.push_back(std::move(note));
  return what;
}

int HaloMap::first_tap_of(Index slab) const {
  return static_cast<int>(slab * l_.slab_taps % l_.slot_taps());
}

ThreadStep HaloMap::thread_step(const TilePlace& tile, int thread, Index step) const {
  constexpr int first_producer = 256, threads = 384;
  if (thread < 0 || thread >= threads)
    throw Error(fmt::format("explain: --thread {}: a CTA of halo has threads 0 to {}", thread,
                            threads - 1));
  const Index slabs = l_.slabs_a_tile();
  if (step < 0 || step >= slabs)
    throw Error(fmt::format("explain: --step {}: a tile has slabs 0 to {}", step, slabs - 1));
  if (thread < first_producer) return consumer_step(tile, thread, step);
  const int producer = thread / 32 % 4;
  ThreadStep what = producer % 2 == 0 ? pixels_step(tile, producer / 2, step)
                                      : weights_step(tile, producer / 2, step);
  if (thread % 32 != 0) what.role += ", but only lane 0 of a producer's warp does anything";
  return what;
}

}  // namespace convoy::inspect
