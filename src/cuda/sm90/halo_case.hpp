// The steps that make a layout of the halo family, for halo_layout.cpp: what it is made for, and
// those of halo_rings.cpp.
#pragma once

#include "cuda/device_facts.hpp"
#include "cuda/sm90/halo_layout.hpp"
#include "cuda/sm90/shared_memory.hpp"

namespace convoy::cuda::sm90 {

/// What a layout is made for.
struct HaloCase {
  const Stage& stage;
  const HaloTile& tile;
  const DeviceFacts& device;
  const HaloInside& inside;

  bool pooled() const { return stage.pool.has_value(); }
  int window() const { return pooled() ? 2 : 1; }
  int tap_bytes() const { return tile.cta_channels() * row_bytes; }  // of weights
  int row_taps() const { return static_cast<int>(stage.s); }
  /// Bytes of shared memory for the rings and the staging buffers.
  int room() const {
    return static_cast<int>(device.shared_bytes) - inside.kept_bytes - swizzle_bytes -
           barrier_bytes;
  }
  /// Whether a tap's math is short against what lies between two slabs.
  bool small() const {
    return tile.instruction_n() * tile.instructions() <= 128 &&
           tile.cta_channels() <= block_channels;
  }
};

/// Slabs of weights, and the slots of both rings, where storage is laid. False: they do not fit, or
/// the tile is another one's double.
bool lay_rings(const HaloCase& c, HaloLayout& out);
/// What follows: boxes that are shared, slabs that are asked for early, offsets. False: they do not
/// fit.
bool finish_rings(const HaloCase& c, HaloLayout& out);

}  // namespace convoy::cuda::sm90
