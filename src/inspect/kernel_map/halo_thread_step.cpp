// What a thread of `halo` does in a step.
#include <fmt/core.h>

#include "convoy/error.hpp"
#include "inspect/kernel_map/halo_map.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

ThreadStep HaloMap::thread_step(const TilePlace& tile, int thread, Index step) const {
  if (thread < 0 || thread >= 384)
    throw Error(fmt::format("explain: --thread {}: a CTA of halo has threads 0 to 383", thread));
  const Index slabs = l_.slabs_a_tile();
  if (step < 0 || step >= slabs)
    throw Error(fmt::format("explain: --step {}: a tile has slabs 0 to {}", step, slabs - 1));
  const Place from = place(tile);
  const int first_tap = static_cast<int>(step * l_.slab_taps % l_.slot_taps());
  const Index load = load_of_step(step);
  ThreadStep what;
  if (thread >= 256) {
    const int producer = thread / 32 % 4;
    const char* lane =
        thread % 32 == 0 ? "" : ", but only lane 0 of a producer's warp does anything";
    if (producer % 2 == 0) {
      what.role = fmt::format("producer {} of pixels{}", producer / 2, lane);
      what.heading = {"load", "box of taps", "chunk", "TMA coordinates", "pixels (n,h,w) from",
                      "slot"};
      const SlotLoads loads = loads_of(tile, load);
      const int of_box = l_.slot_chunks / l_.load_chunks;
      for (std::size_t i = 0; i < loads.boxes.size(); ++i) {
        const Box& at = loads.boxes[i];
        const InputElement x = in_box(at, 0, 0);
        const int number = static_cast<int>(i);
        what.rows.push_back(
            {fmt::format("{}", load), fmt::format("{}", loads.first_box + number / of_box),
             fmt::format("{}", loads.first_chunk + number % of_box * l_.load_chunks),
             fmt::format("({}, {}, {}, {}, {})", at.c0, at.c1, at.c2, at.c3, at.c4),
             fmt::format("({},{},{})", x.n, x.h, x.w), fmt::format("{}", load % l_.x_slots)});
      }
      what.notes.push_back(
          fmt::format("load {} of the tile is that of producer {}; it waits until all consumers "
                      "have given slot "
                      "{} back, and expects {} bytes",
                      load, load % 2, load % l_.x_slots, l_.x_bytes));
    } else {
      what.role = fmt::format("producer {} of weights{}", producer / 2, lane);
      what.heading = {"slab", "taps", "TMA coordinates", "slot"};
      std::string taps;
      for (int t = 0; t < l_.slab_taps; ++t) taps += tap_text(first_tap + t);
      what.rows.push_back({fmt::format("{}", step), taps,
                           fmt::format("(0, {}, {})", from.k, step * l_.slab_taps),
                           fmt::format("{}", step % l_.w_slots)});
      what.notes.push_back(
          fmt::format("slab {} is that of producer {} in a CTA's first tile", step, step % 2));
    }
    return what;
  }
  const int g = thread / 128, lane = thread % 32;
  what.role = fmt::format("consumer: warpgroup {}, its warp {}, lane {}", g, thread / 32 % 4, lane);
  what.heading = {"tap", "descriptor of weights", "descriptor of pixels", "column 0 reads (n,h,w)"};
  const int slab = static_cast<int>(step % l_.w_slots) * l_.w_slot;
  for (int t = 0; t < l_.slab_taps; ++t) {
    const int tap = first_tap + t;
    const int pixels = row_byte(g, tap, {0, 0});
    const InputElement x = in_slot(tile, step, swizzled128(pixels));
    what.rows.push_back(
        {tap_text(tap),
         fmt::format("{}", l_.w_offset + slab + t * l_.cta_channels * row_bytes +
                               g * l_.warpgroup_channels * row_bytes),
         fmt::format("{}", slot_of_step(step) * l_.x_slot + pixels),
         fmt::format("({},{},{}) {}", x.n, x.h, x.w, x.inside ? "inside" : "padding")});
  }
  what.notes.push_back(fmt::format(
      "descriptors: bytes of the CTA's shared memory; groups of 8 columns lie {} bytes apart, "
      "instructions {}, and each k16 step is 32 bytes on",
      l_.group_stride, l_.instruction_stride));
  if (l_.pingpong && g != tile.turn % 2) {
    what.notes.emplace_back("ping-pong: this tile is the other warpgroup's");
    return what;
  }
  for (const int number : {0, 1, 2, 3, 4, 5}) {
    if (number >= tile_of_.instruction_n() * tile_of_.instructions() / 2) break;
    const auto output = output_of(tile, thread, number);
    what.notes.push_back(output ? fmt::format("d[0][{}]: output (n {}, p {}, q {}, k {})", number,
                                              output->n, output->p, output->q, output->k)
                                : fmt::format("d[0][{}]: outside the output", number));
  }
  return what;
}

}  // namespace convoy::inspect
