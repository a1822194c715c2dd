// The sizes that a family's kernels can count: in 32 bits, and TMA in 40. Each family has one table
// of these numbers beside its tiles, checked here in one wording. A batch beyond them runs in parts
// (plan/parts.hpp).
#pragma once

#include <string>
#include <vector>

#include "convoy/stage.hpp"
#include "core/size.hpp"

namespace convoy::cuda {

/// The most that one run may have of each. `Size::most`: as much as a legal stage has.
struct Limits {
  Index extent = Index{1} << 30;  // N, K; H and W with the padding and the filter's reach
  Index channels = Index{1} << 30;
  Index elements = (Index{1} << 38) - 1;  // of x, w, y and the plane before the pool: of f32, TMA's
                                          // strides of under 2^40 bytes
  Index inputs = Size::most;              // images of all steps that have an input of their own
  Index membranes = Size::most;           // N P Q K of a neuron
  Index rows = Size::most;                // N P Q: rows of the implicit GEMM
  // Rows and filters, by tiles of which none is smaller than this.
  Index tiles = Size::most, tile_rows = 1, tile_filters = 1;
  Index products = Size::most;      // R S C: those of an output, or weights where C is K
  Index row_elements = Size::most;  // of a padded row of x
  Index reach = Size::most;         // pixels from a filter's first tap to its last, along an axis
  Index strides = Size::most;       // pixels of x that the outputs' strides lead over, and a tile's
};

/// Every size of a legal stage that is beyond the limits; empty: none is.
std::vector<std::string> beyond(const Stage& stage, const Limits& limits);

/// Kernels number their tiles with 32 bits, and divide the numbers (cuda/divide.hpp) by the tiles
/// along one axis after the other, in this order; along the last axis, `rest`, nothing is divided.
/// Whether all of that is exact.
bool countable(std::initializer_list<Index> divided, Index rest);
inline constexpr const char* too_many_tiles = "more tiles than the kernel's 32-bit numbers count";

/// Tile numbers that a walk may reach behind the last tile, and more: it goes on by a CTA of each
/// multiprocessor, or two.
inline constexpr Index last_step = 1 << 16;

}  // namespace convoy::cuda
