// Which tiles the halo family has, for which stages, and how long each should take. Plain
// arithmetic; needs no GPU.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/serves.hpp"
#include "cuda/device_facts.hpp"
#include "cuda/limits.hpp"
#include "cuda/sm90/shared_memory.hpp"

namespace convoy::cuda::sm90 {

/// TapBox::dx has 16 bits: where each tap is a box of its own, they hold how far it lies. No tile
/// is smaller than a pixel by 32 channels. A thread's membranes are found by 32 bits.
inline constexpr Limits halo_limits{.inputs = Index{1} << 30,
                                    .membranes = Index{1} << 30,
                                    .tiles = Index{1} << 32,
                                    .tile_filters = 32,
                                    .reach = (Index{1} << 15) - 1};
/// Of a line: TMA's coordinates have 31 bits, and the last tiles reach behind the last pixel.
inline constexpr Index most_line_pixels = (Index{1} << 31) - (Index{1} << 20);

/// What the eight columns of one 8-row group of the pixel operand run over. A line is the pixels of
/// all images one after the other, for 1x1 stages that leave every pixel where it is. A brick's are
/// images, and its groups all of its pixels: each tap has a box of its own, without a halo, so that
/// images narrower than eight pixels fill an instruction. No thread holds a whole pooling window,
/// so a brick can't pool.
enum class Inner : std::uint8_t { pixels, images, line, brick };

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
  int time_steps = 1;     // of a neuron that the tile has of each pixel: it is so many times taller
  bool operator==(const HaloTile&) const = default;

  int instruction_n() const {
    switch (inner) {
      case Inner::line:
        return bw;
      case Inner::pixels:
        return 8 * bh * time_steps;
      case Inner::images:
        return 8 * bw;
      case Inner::brick:
        break;
    }
    return bw * bh * bn * time_steps;
  }
  int instructions() const {
    return inner == Inner::pixels ? (bw / 8) * bn : inner == Inner::images ? bh : 1;
  }
  int cta_channels() const {
    return schedule == Schedule::channels ? 2 * block_channels
           : half                         ? block_channels / 2
                                          : block_channels;
  }
  int cta_columns() const {
    return schedule == Schedule::rows && inner == Inner::line ? 2 * bw : bw;
  }
  int cta_rows() const { return schedule == Schedule::rows && inner != Inner::line ? 2 * bh : bh; }
  /// Whether images are the innermost of the tile's axes.
  bool images_first() const { return inner == Inner::images || inner == Inner::brick; }
  /// "8x28x1.channels", with "n" after the box for Inner::images, "b" for a brick, then "t4" for
  /// time steps, or "line64.rows"; ".resident", ".half", ".deep4" at the end.
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

/// Those that are compiled with a neuron: its membranes take as many registers again.
inline constexpr std::array<Accumulator, 4> neuron_accumulators{
    {{128, 1}, {112, 1}, {64, 2}, {64, 1}}};

/// Those that are compiled for four time steps of a pixel, which share a membrane, and for two.
inline constexpr std::array<Accumulator, 4> four_steps_accumulators{
    {{256, 1}, {128, 2}, {128, 1}, {64, 1}}};
inline constexpr std::array<Accumulator, 4> two_steps_accumulators{
    {{224, 1}, {128, 1}, {64, 2}, {64, 1}}};
constexpr const std::array<Accumulator, 4>& accumulators_of(int time_steps) {
  return time_steps == 4 ? four_steps_accumulators : two_steps_accumulators;
}

/// Those that are compiled with f32 sums as their output.
inline constexpr std::array<Accumulator, 8> sums_accumulators{
    {{224, 1}, {128, 2}, {112, 2}, {64, 4}, {128, 1}, {112, 1}, {64, 2}, {64, 1}}};

/// Whether y is f32: a stage whose sums, with the bias, a pass takes on (halo_sums).
inline bool gives_sums(const Stage& stage) {
  return stage.output_dtype(true) == DType::f32;
}

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
/// for each instruction; of f32 so many that a part has no more bytes.
constexpr int store_pieces(int instruction_n, bool sums = false) {
  return sums ? (instruction_n + 63) / 64 : instruction_n >= 112 ? 2 : 1;
}

/// The depths that tiles come in, where they divide the stage's blocks of 64 channels.
inline constexpr std::array<int, 6> depths{1, 2, 3, 4, 5, 8};

struct HaloLayout;  // halo_layout.hpp

inline constexpr Serves served_by_halo{
    .types = halves,
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = false,
    .bias = true,
    .norm = false,
    .acts = elementwise | neurons,
    .soft = true,
    .hold = true,
    .pools = none_or_max2,
    .pools_first = true,
    .keep = nothing,
};
/// With f32 sums as y, inside wrappers.
inline constexpr Serves served_by_halo_sums{
    .types = {{DType::f16, DType::bf16}, DType::f32},
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = false,
    .bias = true,
    .norm = false,
    .acts = Activation::Kind::none,
    .soft = false,
    .hold = false,
    .pools = PoolForm::none,
    .pools_first = false,
    .keep = nothing,
};

/// Adds each reason why the family can't run a legal stage on any tile, beyond what it does not
/// serve.
void refuse_halo(const Stage& stage, const DeviceFacts& device, Reasons& why);
/// Every reason, for callers that have no Kernel; `halo_serves` tells whether a tile fits, too.
Reasons halo_refusals(const Stage& stage, const DeviceFacts& device);
Reasons halo_sums_refusals(const Stage& stage, const DeviceFacts& device);

/// The k16 steps that a tile takes for a tap of 64 input channels: 1 or 2 where the stage has
/// fewer.
int halo_steps(const Stage& stage, const HaloTile& tile);

/// Steps that have an input of their own: those of a neuron whose input is not held.
inline Index halo_inputs(const Stage& stage) {
  return stage.act.is_neuron() && !stage.hold ? stage.t : 1;
}
/// The time steps that a stage's tiles may have; 1: no more than one.
inline int halo_time_steps(const Stage& stage) {
  const Index inputs = halo_inputs(stage);
  return inputs % 4 == 0 ? 4 : inputs % 2 == 0 ? 2 : 1;
}
/// Tiles of a place, one after the other: each has the sums of some of these steps.
inline Index halo_turns(const Stage& stage, const HaloTile& tile) {
  return halo_inputs(stage) / tile.time_steps;
}
/// More make a CTA's walk too long to count.
inline constexpr Index most_turns = 128;

/// Whether the stage's output pixels are its input pixels, each by itself: a line of them.
bool pointwise(const Stage& stage);

/// Predicted seconds of one run.
double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                    const DeviceFacts& device);

/// Whether any tile serves the stage.
bool halo_serves(const Stage& stage, const DeviceFacts& device);

/// A tile with the seconds that are predicted for it.
struct TimedTile {
  HaloTile tile;
  double seconds;
};
/// The tiles, fastest first; of equals the first stays the first.
std::vector<HaloTile> fastest_first(std::vector<TimedTile> tiles);

/// Tiles that serve the stage, best predicted first.
std::vector<HaloTile> halo_tiles(const Stage& stage, const DeviceFacts& device);

}  // namespace convoy::cuda::sm90
