// What the loads of `window` and `halo` write to shared memory: kernels that do nothing but load,
// by the families' own code, and copy it out.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/sm80/window_tile.hpp"
#include "cuda/sm90/halo_layout.hpp"

namespace convoy {

/// Memory in which each 16 bytes say where they lie: units of 16 bytes, number i holds i + 1 and
/// ~i, so that none is zero.
struct Unit {
  std::uint64_t number = 0, inverse = 0;
  bool operator==(const Unit&) const = default;
};
Unit unit_of(std::uint64_t number);

/// All slots of a CTA of `window` after it has loaded steps 0 to `step` of dense x and packed
/// weights of so many units. Empty: the tile is not compiled here. On the current GPU.
std::vector<Unit> window_slots(const Stage& stage, const cuda::sm80::WindowTile& tile, int cta,
                               int step, std::size_t x_units, std::size_t w_units);

/// Every load of a tile of `halo`, one behind the other: pixels (x_slot bytes each), then slabs.
struct HaloSlots {
  std::vector<Unit> pixels, weights;
};
HaloSlots halo_slots(const Stage& stage, const cuda::sm90::HaloTile& tile,
                     const cuda::sm90::HaloLayout& layout, int number, std::size_t x_units,
                     std::size_t w_units);

}  // namespace convoy
