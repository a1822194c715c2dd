// What f32 sums change in the map of `halo`: how they leave.
#include <fmt/core.h>

#include "cuda/sm90/staged_sums.hpp"
#include "inspect/kernel_map/halo_map.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

namespace {

/// What a warp writes of one of its lanes' registers: value e of four of a group of pixels.
SharedAccess sum_write(int pixels, int warp, int e) {
  SharedAccess one;
  for (int lane = 0; lane < 32; ++lane) {
    const int channel = halo_channel(lane, warp) + e / 2 * 8, pixel = 2 * (lane % 4) + e % 2;
    one.address.push_back(static_cast<int>(staged_sum_at(0, pixels, channel, pixel)));
    one.plain_address.push_back((channel / 32 * pixels + pixel) * row_bytes + channel % 32 * 4);
  }
  one.use = bank_use(one.address, 4), one.plain = bank_use(one.plain_address, 4);
  return one;
}

}  // namespace

SharedAccess HaloMap::sums_writes() const {
  const int pieces = store_pieces(tile_of_.instruction_n(), true),
            pixels = tile_of_.instruction_n() / pieces,
            registers = tile_of_.instruction_n() / 2 * tile_of_.instructions();
  SharedAccess write;
  write.name = "write sums";
  write.instruction = "st.shared.f32";
  write.who = fmt::format("each consumer warp, {} a tile", registers);
  write.store = true;
  write.width = 4;
  const double times = registers / 4.0 * (l_.pingpong ? 1 : 2);
  for (int warp = 0; warp < 4; ++warp)
    for (int e = 0; e < 4; ++e) write.add(sum_write(pixels, warp, e), times);
  return write;
}

std::vector<std::string> HaloMap::sums_epilogue_text() const {
  const int parts = store_pieces(tile_of_.instruction_n(), true) * tile_of_.instructions();
  return {
      "a thread adds the bias to each of its sums and writes it alone: stmatrix transposes values "
      "of 2 bytes, and these have 4",
      fmt::format("the staged part is {} pixels of 64 channels, two boxes of 32 channels; one "
                  "thread stores them by TMA, in {} {} a tile",
                  l_.stored_pixels, parts, parts == 1 ? "part" : "parts"),
      "a part has as many bytes as one of 16 bits, for half of the pixels: its staging leaves room "
      "for the rings"};
}

}  // namespace convoy::inspect
