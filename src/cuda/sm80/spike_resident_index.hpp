// Kernel `spike_resident`: who holds what of a 16x8x16 product, and which sums lie in which row of
// it. Plain arithmetic, for the kernel, the packing and the tests alike.
//
// A product's rows are outputs (pixels of the convolution, or images of a linear layer), its
// columns filters, its depth units of 8 values that lie together in shared memory: two a product.
#pragma once

#include <cstdint>

#include "math/host_device.hpp"

namespace convoy::cuda::sm80 {

inline constexpr int tile_rows = 16, tile_columns = 8, unit_values = 8, resident_unit_bytes = 16;

/// What a task, which one warp does, takes of a layer: so many tiles by so many eights of filters,
/// in so many steps at once. Of the first layer one eight, in all its phases.
struct TaskSizes {
  int first_tiles = 0, conv_tiles = 0, linear_tiles = 0, columns = 0, steps = 0;
  int ahead = 0;  // products of a linear layer whose weights are on their way
  bool operator==(const TaskSizes&) const = default;
};
/// Of a batch that gives each warp images enough, and of one where warps share an image.
inline constexpr TaskSizes many_tasks{3, 2, 3, 2, 2, 1}, few_tasks{1, 1, 1, 1, 2, 4};

/// Which tap of a window unit `unit` of the depth belongs to, and which unit of the tap it is.
/// Rows lie in pairs, so that a product's two units are neighbours in a column: what a tile reads
/// for a pair is what the tile above it reads for the next. An odd last row comes behind them.
struct UnitPlace {
  int row = 0, column = 0, unit = 0;
};
CONVOY_HD constexpr UnitPlace unit_place(int unit, int taps_h, int taps_w, int tap_units) {
  const int run = taps_h / 2 * 2, paired = run * taps_w * tap_units;
  if (unit < paired) return {unit % run, unit / run / tap_units, unit / run % tap_units};
  return {taps_h - 1, (unit - paired) / tap_units, (unit - paired) % tap_units};
}

/// The row whose address a lane gives to ldmatrix, and which of the product's two units.
CONVOY_HD int address_row(int lane) {
  return lane & 15;
}
CONVOY_HD int address_unit(int lane) {
  return lane >> 4;
}

/// Of the weights that a lane holds, [unit 0, 1][value 0, 1]: their column and their place in the
/// unit.
CONVOY_HD int weight_column(int lane) {
  return lane >> 2;
}
CONVOY_HD int weight_value(int lane, int i) {
  return 2 * (lane & 3) + i;
}

/// Of the sums that a lane holds, four: sum i lies in row `sum_row(lane) + 8 * (i / 2)`, column
/// `sum_column(lane) + i % 2`.
CONVOY_HD int sum_row(int lane) {
  return lane >> 2;
}
CONVOY_HD int sum_column(int lane) {
  return 2 * (lane & 3);
}

/// Where the output of a row lies.
struct Place {
  int row = 0, column = 0;
};

/// A convolution on spikes. Pooled: an item is a window; rows g and g + 8 are its upper and lower
/// pixel, rows of an even and the next g its two columns. Else an item is a pixel.
CONVOY_HD int conv_item(int tile, int row, bool pool) {
  return pool ? tile * 4 + (row & 7) / 2 : tile * tile_rows + row;
}
CONVOY_HD Place conv_pixel(int item, int row, int across, bool pool) {
  const int y = item / across, x = item % across;
  return pool ? Place{2 * y + row / 8, 2 * x + (row & 1)} : Place{y, x};
}
CONVOY_HD int conv_tiles(int items, bool pool) {
  return pool ? (items + 3) / 4 : (items + tile_rows - 1) / tile_rows;
}

/// The first layer: an item is a group of `phases` neighbouring columns, which lie in the product's
/// columns. Pooled, rows g and g + 8 are its upper and lower row.
CONVOY_HD int first_item(int tile, int row, bool pool) {
  return pool ? tile * 8 + (row & 7) : tile * tile_rows + row;
}
CONVOY_HD Place first_group(int item, int row, int across, bool pool) {
  const int y = item / across, x = item % across;
  return pool ? Place{2 * y + row / 8, x} : Place{y, x};
}
CONVOY_HD int first_tiles(int items, bool pool) {
  return pool ? (items + 7) / 8 : (items + tile_rows - 1) / tile_rows;
}

}  // namespace convoy::cuda::sm80
