// Host side of the halo family: which tiles exist for a stage, how a tile lies in shared memory,
// how long it should take. Plain arithmetic; needs no GPU.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "convoy/stage.hpp"
#include "cuda/device.hpp"
#include "cuda/tensor_map.hpp"

namespace convoy::cuda::sm90 {

/// What the eight columns of one 8-row group of the pixel operand run over. A line is the pixels of
/// all images one after the other, for 1x1 stages that leave every pixel where it is.
enum class Inner : std::uint8_t { pixels, images, line };

/// What the two consumer warpgroups share: a pixel tile (64 channels each), 64 channels (half of
/// the rows each), or nothing: tiles in turn, so that one's epilogue runs under the other's math.
enum class Schedule : std::uint8_t { channels, rows, pingpong };

/// One warpgroup's tile is 64 channels x (bw x bh x bn) pixels of the convolution's output.
struct HaloTile {
  Inner inner = Inner::pixels;
  int bw = 8, bh = 28, bn = 1;
  Schedule schedule = Schedule::channels;
  bool resident = false;  // all weights of the channel block stay in shared memory
  bool half = false;      // 32 channels: half of the rows of each instruction are thrown away
  int deep = 0;           // a slot holds all boxes of this many 64 channels; 0: one box
  bool operator==(const HaloTile&) const = default;

  int instruction_n() const {
    return inner == Inner::line ? bw : inner == Inner::pixels ? 8 * bh : 8 * bw;
  }
  int instructions() const {
    return inner == Inner::line ? 1 : inner == Inner::pixels ? (bw / 8) * bn : bh;
  }
  int cta_channels() const { return schedule == Schedule::channels ? 128 : half ? 32 : 64; }
  int cta_columns() const {
    return schedule == Schedule::rows && inner == Inner::line ? 2 * bw : bw;
  }
  int cta_rows() const { return schedule == Schedule::rows && inner != Inner::line ? 2 * bh : bh; }
  /// "8x28x1.channels", with "n" after the box for Inner::images, or "line64.rows"; ".resident",
  /// ".half", ".deep4" at the end.
  std::string name() const;
};

/// (N, instructions) pairs that are compiled, as tile sizes a warpgroup: the accumulators take
/// N * instructions / 2 registers of 232.
struct Accumulator {
  int n, instructions;
  bool operator==(const Accumulator&) const = default;
};
inline constexpr std::array<Accumulator, 11> accumulators{{{256, 1},
                                                           {224, 1},
                                                           {128, 2},
                                                           {112, 2},
                                                           {64, 4},
                                                           {56, 4},
                                                           {128, 1},
                                                           {64, 2},
                                                           {112, 1},
                                                           {64, 1},
                                                           {32, 1}}};

/// Whether an accumulator serves tiles of half the channels: they are for few pixels, where a tap's
/// weights take longer to come than its math.
constexpr bool serves_half(Accumulator a) {
  return a.n <= 64 && a.instructions == 1;
}

/// Whether an accumulator also comes compiled for stages of at most 16 and 32 channels.
constexpr bool serves_narrow(Accumulator a) {
  return a.instructions == 1 && a.n % 64 == 0;
}

/// Without a pool a tile leaves in parts, so that its staging leaves room for the rings: this many
/// for each instruction.
constexpr int store_pieces(int instruction_n) {
  return instruction_n >= 112 ? 2 : 1;
}

/// The depths that tiles come in, where they divide the stage's blocks of 64 channels.
inline constexpr std::array<int, 6> depths{1, 2, 3, 4, 5, 8};

inline constexpr int max_taps = 64;
inline constexpr std::uint16_t opens_slot = 1 << 15;  // in a tap's shift: the first tap of a slot

/// One TMA box of pixels and the taps that read it. A stride-1 stage has one view; with stride 2
/// each parity of rows and columns is a view; where halos don't fit, each tap is one.
struct View {
  std::int16_t dx, dy;        // of its first pixel, from the tile's first input pixel
  std::uint8_t first, count;  // taps
};

/// How a tile of a stage lies in shared memory and walks through the output.
struct HaloLayout {
  int chunks = 0;  // of 64 input channels
  int views = 0, taps = 0;
  int slot_chunks = 1, slot_views = 1;  // boxes of a pixel slot: those of so many chunks and views
  int load_chunks = 1;                  // that one load of pixels brings: all of a slot's, or one
  int slab_taps = 1;                    // taps of a slab of weights, the unit of their ring
  std::array<View, max_taps> view{};
  std::array<std::uint16_t, max_taps>
      tap_shift{};  // of the first pixel in the slot, in 16 bytes; | opens_slot
  std::array<std::uint8_t, max_taps> tap_index{};  // r*S + s, in the order of summation
  int box_w = 0, box_h = 0, box_n = 0;             // pixels of a box in shared memory
  int x_bytes = 0, x_box = 0;                      // of a box: loaded; to the next one in its slot
  int x_slot = 0, w_slot = 0;                      // bytes of the slots
  int group_stride = 0, instruction_stride = 0, warpgroup_stride = 0;  // bytes in a pixel slot
  int store_i = 0, store_j = 0, stored_pixels = 0;  // rows of the staged output tile
  int staging = 0;                                  // bytes of one buffer
  int store_buffers = 1;  // of each warpgroup: with two, a part is staged while the last one leaves
  int x_slots = 0, w_slots = 0, shared_bytes = 0;
  int early_slabs = 0;  // of weights, that are asked for before the first pixels have come
  int k_blocks = 0, tiles_x = 0, tiles_y = 0, tiles_n = 0;
  int slot_taps() const { return slot_chunks * taps; }
  int slots_a_tile() const { return chunks / slot_chunks * (views / slot_views); }
  int slabs_a_tile() const { return chunks * taps / slab_taps; }
  Index tiles() const { return Index{k_blocks} * tiles_x * tiles_y * tiles_n; }
  int grid = 0;
  bool crowded = false;  // too many CTAs for those of the next launch to lie beside them
};

/// Every reason why the family can't run a legal stage on any tile; empty: it can.
std::vector<std::string> halo_refusals(const Stage& stage, const DeviceFacts& device);

/// The taps r*S + s of the stage in the order of summation, which no tile changes.
std::vector<int> halo_tap_order(const Stage& stage);

/// The k16 steps that a tile takes for a tap of 64 input channels: 1 or 2 where the stage has
/// fewer.
int halo_steps(const Stage& stage, const HaloTile& tile);

/// Whether the stage's output pixels are its input pixels, each by itself: a line of them.
bool pointwise(const Stage& stage);

/// The layout, or why the tile does not serve the stage: x_slots is 0 then.
HaloLayout halo_layout(const Stage& stage, const HaloTile& tile, const DeviceFacts& device);

/// Tiles that a run of so many images takes.
int halo_tiles_of(const Stage& stage, const HaloTile& tile, const HaloLayout& layout, Index images);

/// Predicted seconds of one run.
double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout);

/// Whether any tile serves the stage.
bool halo_serves(const Stage& stage, const DeviceFacts& device);

/// Tiles that serve the stage, best predicted first.
std::vector<HaloTile> halo_tiles(const Stage& stage, const DeviceFacts& device);

/// Whether the input channels are whole blocks of 64, of which one load can then bring several.
inline bool whole_chunks(const Stage& stage) {
  return stage.c % 64 == 0;
}

/// Weights [K,R,S,C] as they lie on the device, in the order of summation: [blocks of 64 channels,
/// taps, K, 64], with zeros for channels that do not exist. A slab is then one box for TMA.
std::vector<float> halo_weights(const Stage& stage, const float* w);
Index halo_weights_elements(const Stage& stage);

/// Arguments of the three tensor maps. Pixel strides in elements, at least C and K.
TensorMapArgs halo_x_map(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                         Index pixel_stride);
TensorMapArgs halo_w_map(const Stage& stage, const HaloTile& tile, const HaloLayout& layout);
TensorMapArgs halo_y_map(const Stage& stage, const HaloTile& tile, Index pixel_stride);

}  // namespace convoy::cuda::sm90
