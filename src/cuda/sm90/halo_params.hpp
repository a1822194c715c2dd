// What one launch of a halo kernel is told. Everything that does not change the code it compiles
// to.
#pragma once

#include <cuda.h>

#include "cuda/divide.hpp"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/halo_layout.hpp"

namespace convoy::cuda::sm90 {

struct HaloParams {
  CUtensorMap x, w, y;
  Epilogue epilogue;
  int tiles;
  // What the kernel would have to divide for.
  Divisor by_k, by_x, by_y;  // a tile's number by the tiles along these axes
  int slot_taps, slabs;      // of a slot; of a tile
  KernelLayout at;           // last, for its arrays
};
static_assert(sizeof(HaloParams) <= 1152,
              "a launch copies its parameters, and waits for each line that it reads: two lines "
              "more cost small stages 3 %");

/// What follows from stage and layout: all but the maps, the bias and the number of tiles.
HaloParams halo_params(const Stage& stage, const HaloLayout& layout);

}  // namespace convoy::cuda::sm90
