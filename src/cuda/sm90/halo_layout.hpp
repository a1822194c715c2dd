// How a tile of the halo family lies in shared memory and walks through the output: what the host
// decides before a launch. The kernel reads a part of it (halo_params.hpp). Plain arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cuda/divide.hpp"
#include "cuda/sm90/halo_tile.hpp"
#include "cuda/sm90/shared_memory.hpp"
#include "cuda/tensor_map_args.hpp"

namespace convoy::cuda::sm90 {

inline constexpr int max_taps = 64;
inline constexpr std::uint16_t opens_slot = 1 << 15;  // in a tap's shift: the first tap of a slot
/// Of shared memory, for the barriers of the rings and of what runs halo inside.
inline constexpr int barrier_bytes = 1024;

/// One TMA box of pixels and the taps that read it, each at a shifted place. A stride-1 stage has
/// one box; with stride 2 each parity of rows and columns is a box; where halos don't fit, each tap
/// is. For the host: the kernel reads BoxPlace.
struct TapBox {
  std::int16_t dx, dy;        // of its first pixel, from the tile's first input pixel
  std::uint8_t first, count;  // taps
};

/// Where a box begins, in KernelLayout's box_x and box_y: its parity, or where each tap is a box
/// the tap's column and row in the filter. lay_taps throws if one has more than 8 bits.
struct BoxPlace {
  std::uint8_t column, row;
};
static_assert(max_taps - 1 <= std::numeric_limits<std::uint8_t>::max(), "a tap's column and row");

/// What the kernel reads of a layout. Sizes, strides and offsets are in bytes. In the order of use,
/// the arrays last: a launch waits for each line of its parameters that it reads. A field more
/// among the first cost large stages 1.3 %: what lies in eight bytes is one load, and how many
/// loads there are decides whether ptxas keeps descriptors in uniform registers. New ones go before
/// the arrays.
struct KernelLayout {
  // The pixels that a tile reads. A slot of them holds so many chunks and boxes of taps.
  int chunks = 0;  // of row_channels input channels
  int boxes = 0;
  int slot_chunks = 1, slot_boxes = 1;
  int load_chunks = 1;     // that one load of pixels brings: all of a slot's, or one
  int chunk_channels = 0;  // from one load to the next along axis 0; 0: chunks are an axis
  int sharers = 1;  // 2: warpgroups in ping-pong take both channel blocks of a box that loads once
  // A CTA's tile, in output channels and pixels of the convolution's output.
  int cta_channels = 0, cta_w = 0, cta_h = 0, cta_n = 0;
  // The convolution: from pixel to pixel of x, and x's pixel below the first one of y.
  int step_w = 0, step_h = 0, first_w = 0, first_h = 0;
  bool images = false, pingpong = false, resident = false, half = false;  // as the tile says

  // The rings.
  int x_slots = 0, w_slots = 0, x_slot = 0, w_slot = 0;
  int slab_taps = 1;  // of a slab of weights, the unit of their ring
  int early_slabs = std::numeric_limits<int>::max();  // asked for before the first pixels have come
  int x_bytes = 0;                                    // that a slot's loads of pixels bring
  int x_box = 0;                                      // from one box to the next in its slot
  int w_offset = 0, staging_offset = 0, barrier_offset = 0;  // what begins behind the pixels' ring
  int group_stride = 0, instruction_stride = 0, warpgroup_stride = 0;  // in a slot
  int skip_x = 0, skip_w = 0;          // a tile's slots: beyond whole rounds;
  int skip_x_odd = 0, skip_w_odd = 0;  // whether those rounds are odd

  // The output, staged.
  int window = 1;                                                         // of the pool: 1 or 2
  int warpgroup_channels = 0, warpgroup_rows = 0, warpgroup_columns = 0;  // from 0's part to 1's
  int staging = 0;                                                        // of one buffer
  int store_i = 0, store_j = 0, stored_pixels = 0;  // rows: from instruction and group to the next
  int part_x = 0, part_y = 0, part_n = 0;  // of y, from one instruction's pixels to the next's
  int piece_x = 0, piece_y = 0;            // from one piece of an instruction's to the next
  int store_buffers = 1;  // of each warpgroup: with two, a part is staged while the last one leaves

  std::uint8_t time_steps =
      1;  // that a tile has of each pixel; of several, they are an axis of x and y
  bool x_passes = false,
       w_passes = false;  // a ring's slots, from one producer to another (wait_empty)

  int box_x = 1, box_y = 1;  // pixels of x for a unit of a BoxPlace
  BoxPlace box_place[max_taps] = {};
  std::uint16_t tap_shift[max_taps] =
      {};  // of its first pixel in the slot, in 16 bytes; | opens_slot
};

/// x_slots = 0: there is none.
struct HaloLayout : KernelLayout {
  Shapes shapes;  // of the stage
  // How many tiles there are, channel blocks fastest, and CTAs to walk over them.
  int k_blocks = 0, tiles_x = 0, tiles_y = 0, tiles_n = 0;
  int grid = 0;
  bool crowded = false;  // too many CTAs for those of the next launch to lie beside them

  int taps = 0;
  TapBox box[max_taps] = {};
  std::array<std::uint8_t, max_taps> tap_index{};  // r*S + s, in the order of summation
  int box_w = 0, box_h = 0, box_n = 0;             // pixels
  int box_bytes = 0;                               // that a load brings
  int shared_bytes = 0;                            // that all of it takes

  int slot_taps() const { return slot_chunks * taps; }
  int slots_a_tile() const { return chunks / slot_chunks * (boxes / slot_boxes); }
  int slabs_a_tile() const { return chunks * taps / slab_taps; }
  Index tiles() const { return Index{k_blocks} * tiles_x * tiles_y * tiles_n; }
  int end() const { return barrier_offset + barrier_bytes; }
};

/// What a kernel that runs halo's main loop inside asks of its layout.
struct HaloInside {
  int kept_bytes = 0;  // of shared memory, for itself: they lie behind halo's
  int staging = 0;     // of a warpgroup's buffer; 0: as halo's own epilogue needs
  int sharers = 1;     // as HaloLayout has it
  bool alone = true;   // nothing else is inside
};

/// A stage's layouts, tile by tile. What no tile changes is worked out once: a plan looks at a
/// thousand tiles.
class HaloLayouts {
 public:
  /// All of them must outlive it.
  HaloLayouts(const Stage& stage, const DeviceFacts& device, const HaloInside& inside);
  /// Whether the tile's form serves the stage, whatever its size.
  bool may_serve(const HaloTile& tile) const;
  /// Of a tile that may serve: the layout; x_slots is 0 where it does not fit.
  HaloLayout of(const HaloTile& tile);

 private:
  const Stage& stage_;
  const DeviceFacts& device_;
  const HaloInside& inside_;
  HaloLayout begun_;                 // shapes, and taps that share boxes
  std::optional<HaloLayout> apart_;  // with a box for each tap, once asked for
};

/// The layout of one tile; x_slots is 0 where it does not serve the stage.
HaloLayout halo_layout(const Stage& stage, const HaloTile& tile, const DeviceFacts& device,
                       const HaloInside& inside = {});

/// Sets the boxes, the taps with their place in a box (y << 8 | x, which halo_layout makes shifts
/// of), and box_w and box_h to what they reach over.
void lay_taps(const Stage& stage, bool one_tap_a_box, HaloLayout& out);

/// The taps r*S + s of the stage in the order of summation, which no tile changes.
std::vector<int> halo_tap_order(const Stage& stage);

/// A line of so many tiles that their number has no exact Divisor. There is one row of them: a
/// divisor above all numbers, which are below 2^30 then, leaves them as they are.
constexpr int long_line = 1 << 15, above_numbers = 1 << 30;
inline bool is_long_line(const HaloLayout& l) {
  return l.tiles_y == 1 && l.tiles_n == 1 && l.tiles_x > long_line;
}
/// What divides a tile's number by the tiles in a row.
inline Divisor halo_across(const HaloLayout& l) {
  return Divisor(is_long_line(l) ? above_numbers : l.tiles_x);
}
/// Whether the tiles can be numbered, and their numbers divided.
inline bool halo_countable(const HaloLayout& l) {
  if (is_long_line(l))
    return l.tiles_x < above_numbers - last_step && countable({l.k_blocks}, l.tiles_x);
  return countable({l.k_blocks, l.tiles_x, l.tiles_y}, l.tiles_n);
}

/// Places in y that a run of so many images has a tile for, and CTAs that walk over them.
int halo_places_of(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                   Index images);
int halo_grid_of(const HaloLayout& layout, int places);
/// Tiles that such a run takes. With several turns (halo_turns) each CTA takes whole places, as
/// many as any other.
int halo_tiles_of(const Stage& stage, const HaloTile& tile, const HaloLayout& layout, Index images);

/// What tile number t of such a run is: a place in y (as halo_places_of counts them) and a turn.
struct Turn {
  int place, turn;
};
/// Turns are fastest in a CTA's walk; in ping-pong the two warpgroups, each in a place of its own,
/// are faster still.
CONVOY_HD Turn turn_of(int t, const Divisor& by_grid, const Divisor& by_turns, bool pingpong) {
  const int block = by_grid.reduce(t), both = pingpong ? 1 : 0, warpgroup = t & both;
  int round = t >> both;
  const int turn = by_turns.reduce(round);
  return {block + ((round << both) + warpgroup) * static_cast<int>(by_grid.d), turn};
}

/// Whether the input channels are whole chunks, of which one load can then bring several.
inline bool whole_chunks(const Stage& stage) {
  return stage.c % row_channels == 0;
}

/// Weights [K,R,S,C] as they lie on the device, in the order of summation: [chunks, taps, K,
/// row_channels],
/// with zeros for channels that do not exist. A slab is then one box for TMA.
std::vector<float> halo_weights(const Stage& stage, const float* w);
/// Names what that depends on (Prepared::packing): the order of the taps, for one, on stride and
/// dilation.
std::string halo_packing(const Stage& stage);
Index halo_weights_elements(const Stage& stage);

/// Arguments of the three tensor maps. Pixel strides in elements, at least C and K. Of x: the
/// images are those of all steps with an input of their own, unless the layout's tiles have several
/// steps, which are then the axis behind the columns, or behind the images where these come first.
TensorMapArgs halo_x_map(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                         Index pixel_stride);
TensorMapArgs halo_w_map(const Stage& stage, const HaloTile& tile, const HaloLayout& layout);
TensorMapArgs halo_y_map(const Stage& stage, const HaloTile& tile, Index pixel_stride);

}  // namespace convoy::cuda::sm90
