// What one launch of a halo kernel is told. Everything that does not change the code it compiles
// to.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "cuda/divide.hpp"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/halo_layout.hpp"

namespace convoy::cuda::sm90 {

struct HaloParams {
  CUtensorMap x, w, y;
  PostOps post;
  int tiles;
  // What the kernel would have to divide for.
  Divisor by_k, by_x, by_y;  // a tile's number by the tiles along these axes
  int slot_taps, slabs;      // of a slot; of a tile
  KernelLayout at;           // last, for its arrays
};
/// Bytes up to which all measurements of halo were made. A launch copies its parameters, and waits
/// for each line that it reads: two lines of 64 bytes more cost small stages 3 %.
inline constexpr std::size_t measured_params = 1152;
static_assert(offsetof(HaloParams, at) + sizeof(KernelLayout) + sizeof(CUtensorMap) +
                      8 * sizeof(void*) <=
                  measured_params,
              "free: a tensor map and eight pointers");

/// What follows from stage and layout: all but the maps, the bias and the number of tiles.
HaloParams halo_params(const Stage& stage, const HaloLayout& layout);

/// Makes the maps of a run of all images with dense x and y, of which only the weights' has its
/// address yet. `of_x`: a stage whose images are all that x has. Returns an empty string, or what
/// went wrong.
std::string encode_maps(const Stage& of_x, const Stage& stage, const HaloTile& tile,
                        const HaloLayout& layout, const void* w, HaloParams& p);

enum class PoolKind { none, pixels, images };  // max 2x2: which accumulators form a window
PoolKind pool_kind(const Stage& stage, const HaloTile& tile);

}  // namespace convoy::cuda::sm90
