// The window family's tiles and what a stage becomes in one: groups, steps, CTAs. Host arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "cuda/limits.hpp"
#include "cuda/sm80/window_box.hpp"

namespace convoy::cuda::sm80 {

/// Rows are numbered with 32 bits, also those of the last tile that do not exist, and so are bytes
/// of a pixel. No tile is smaller than 64 pixels by 32 filters; a box may be smaller than its tile,
/// so that tiles are counted as if they were of one pixel.
inline constexpr Limits window_limits{.channels = Index{1} << 28,
                                      .rows = (Index{1} << 31) - (1 << 16),
                                      .tiles = (Index{1} << 31) - (1 << 16),
                                      .tile_rows = 64,
                                      .tile_filters = block_filters,
                                      .products = (Index{1} << 31) - (1 << 16)};

/// Which of window_iterators.hpp visits the pixels; of `narrow` tiles Unlimited.
enum class Visit { optimized, analytic, precomputed };

/// A CTA's rows by filters, a warp's, and the ring's slots. `sparse`: filters in order, groups may
/// be merged. `narrow`: any alignment of x, any filter, either order of filters. `box`:
/// window_box's, of at most m pixels. `pairs`: two steps between barriers.
struct WindowTile {
  int m = 0, n = 0, warp_m = 0, warp_n = 0, slots = 0;
  int ctas = 1;  // of a multiprocessor, whose registers they share
  bool sparse = false, narrow = false;
  Visit visit = Visit::optimized;
  bool box = false;
  bool pairs = false;

  constexpr int threads() const { return 32 * (m / warp_m) * (n / warp_n); }
  constexpr int slot_bytes() const { return (m + n) * chunk_bytes; }
  constexpr int shared_bytes() const { return slots * slot_bytes(); }
  std::string name() const;
  bool operator==(const WindowTile&) const = default;
};

// Warps of 64 x 64 read each value from shared memory for 64 products; eight of them fill a
// multiprocessor's registers. The others: fewer filters, small stages, small groups.
inline constexpr WindowTile largest{128, 256, 64, 64, 4, 1};
inline constexpr WindowTile large{128, 128, 64, 64, 4, 2};
inline constexpr WindowTile half_large{128, 64, 64, 32, 4, 2};
// For long sums, and for CTAs that have a multiprocessor to themselves. Not every GPU has the
// shared memory.
inline constexpr WindowTile wide_pairs{
    .m = 128, .n = 256, .warp_m = 64, .warp_n = 64, .slots = 6, .pairs = true};
inline constexpr WindowTile tall_pairs{
    .m = 256, .n = 128, .warp_m = 64, .warp_n = 64, .slots = 6, .pairs = true};
inline constexpr WindowTile large_pairs{
    .m = 128, .n = 128, .warp_m = 64, .warp_n = 64, .slots = 8, .pairs = true};
inline constexpr WindowTile small{64, 64, 32, 32, 6, 3};
// Of f32, whose few CTAs wait for their three dependent products: half the rows to a warp.
inline constexpr WindowTile half_small{32, 64, 16, 32, 8, 4};
inline constexpr WindowTile block_wide{128, 32, 32, 32, 4, 3, true};
// Any x: many instructions for each copy and step. Where CTAs are few, eight warps share them, each
// with half the rows, which are no whole windows.
inline constexpr WindowTile narrow{64, 64, 32, 32, 4, 3, false, true};
inline constexpr WindowTile narrow_shared{64, 64, 16, 32, 4, 2, false, true};
// Small groups of 3x3 filters. Of window_box's registers CTAs of 512 threads hold as many as there
// are.
inline constexpr WindowTile box256{256, 32, 64, 16, 2, 2, true, false, Visit::analytic, true};
inline constexpr WindowTile box128{128, 32, 32, 16, 2, 2, true, false, Visit::analytic, true};
inline constexpr WindowTile box64{64, 32, 32, 16, 2, 4, true, false, Visit::analytic, true};
// To be compared with `large`, in f16.
inline constexpr WindowTile large_analytic{128, 128, 64, 64, 4, 2, false, false, Visit::analytic};
inline constexpr WindowTile large_precomputed{
    128, 128, 64, 64, 4, 2, false, false, Visit::precomputed};
constexpr int most_table_taps = 256;
/// Of f32: products an output from which three products of tf32 are as exact as fp32's sums, by
/// their largest error (docs/lab/gpu-window.md).
constexpr int least_products = 16;

/// Which groups are run as one: of small groups so many that their channels fill a chunk or their
/// filters a block. The packed weights hold zeros for products of different groups.
struct WindowGroups {
  int count = 1;                          // as the kernel has them
  int channels = 1, filters = 1;          // of one of those
  int own_channels = 1, own_filters = 1;  // of one of the stage's
  int merged = 1;                         // of the stage's in one
  /// Bit 4p + j: filters 8j to 8j + 7 of the block have channels in common with the 32-byte part p
  /// of the group's chunks. All set where nothing is merged.
  std::uint32_t live = ~std::uint32_t{0};
};

/// A stage in a tile.
struct WindowSizes {
  WindowGeometry g;  // of the stage's n images; distances are of a run
  WindowGroups groups;
  int c = 1, k = 1;              // of the stage
  int chunks = 1, steps = 1;     // of channels; of these and taps
  int blocks = 1;                // of 32 filters, of a group
  Index block_bytes = 0;         // of the weights of one
  bool in_order = false;         // filters in their blocks
  int m_tiles = 1, n_tiles = 1;  // n_tiles: of all groups
  FastDivisor of_group;          // n_tiles of one
  CtaOrder order;
  int images = 0;      // of a run
  WindowBox box;       // of tiles that are one; m_tiles then counts the CTAs that share them
  int box_ctas = 264;  // of those, how many run at once
};

/// Whether y's numbers are wider than x's: then there are fewer tiles.
inline bool widens(const Stage& stage) {
  return stage.output_dtype(true) != stage.dtype;
}

inline constexpr Serves served_by_window{
    .types = Types(DType::f32, DType::f32) | Types(DType::f16, {DType::f16, DType::f32}) |
             Types(DType::bf16, {DType::bf16, DType::f32}),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = true,
    .bias = true,
    .norm = false,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = none_or_max2,
    .pools_first = true,
    .keep = nothing,
};

/// Adds each reason why the family can't run a legal stage beyond what it does not serve.
void refuse_window(const Stage& stage, const Machine& machine, Reasons& why);
/// Every reason why the family can't run a legal stage, for callers that have no Kernel; empty: it
/// can.
Reasons window_refusals(const Stage& stage, const Machine& machine);
/// Of a stage that fits, at least one: those that the machine has the shared memory for.
std::vector<WindowTile> window_tiles(const Stage& stage, const Machine& machine);
WindowSizes window_sizes(const Stage& stage, const WindowTile& tile);
/// Of a stage that boxes fit: the box of at most tile.m pixels; of no pixels where it is too large
/// for shared memory. And the 32-byte parts of a pixel that 16 filters take.
WindowBox box_of(const Stage& stage, const WindowTile& tile);
int box_parts(const WindowGroups& groups, DType type);
/// How many CTAs of a box tile the GPU runs at once, which its loop over boxes is cut for.
void set_machine(WindowSizes& sizes, const Stage& stage, const WindowTile& tile,
                 const Machine& machine);
/// The same for a run's images.
void set_images(WindowSizes& sizes, const WindowTile& tile, Index images);

/// [K,R,S,C/groups] as the kernel reads them: [group][block of 32 filters][chunk][R][S][32][64
/// bytes], zeros where there is nothing.
std::vector<float> window_weights(const Stage& stage, bool in_order, const float* w);

/// Predicted seconds of a run, and the share of products that are thrown away.
double window_seconds(const Stage& stage, const WindowTile& tile, const Machine& machine);
double window_waste(const Stage& stage, const WindowTile& tile);

}  // namespace convoy::cuda::sm80
