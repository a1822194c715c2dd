// F(4x4, 3x3) as the GPU's kernel `winograd4` takes it: tiles, chunks of images, the products'
// stage. Host arithmetic, needs no CUDA.
#pragma once

#include <string>
#include <vector>

#include "core/serves.hpp"
#include "cuda/limits.hpp"
#include "math/winograd.hpp"

namespace convoy::cuda {

/// Threads of a pass are counted by their tiles (refuse_winograd).
inline constexpr Limits winograd_limits{};

/// Tiles of 4x4 outputs along an image's axes.
struct WinogradTiles {
  int down = 0, across = 0;
  Index of_image() const { return Index{down} * across; }
};
WinogradTiles winograd_tiles(const Stage& stage);
/// Outputs that are wanted: before the pool, with one in whole windows.
struct WinogradOutputs {
  Index p = 0, q = 0;
};
WinogradOutputs winograd_outputs(const Stage& stage);

/// Bytes of an image's transforms, before and behind the sums.
Index winograd_bytes_of_image(const Stage& stage);
/// Images whose transforms lie in memory at once, of so many megabytes.
Index winograd_images_of_chunk(const Stage& stage, Index megabytes);
/// From which to choose, for each another number of images.
std::vector<int> winograd_megabytes(const Stage& stage);
std::string winograd_tile_name(int megabytes);

/// The sums of products of `images` images: a pixel is a tile, a group one of its 36 products.
Stage winograd_inner(const Stage& stage, Index images);

inline constexpr Serves served_by_winograd{
    .types = Types(DType::f32, DType::f32),
    .layouts = Layout::nhwc,
    .strides = false,
    .dilation = false,
    .groups = false,
    .bias = true,
    .norm = false,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = none_or_max2,
    .pools_first = false,
    .keep = nothing,
};

/// Adds each reason why the passes can't run a legal stage, beyond what they do not serve. If there
/// is none, the kernel for the inner stage is asked next.
void refuse_winograd(const Stage& stage, Reasons& why);
/// Every reason, for callers that have no Kernel.
Reasons winograd_refusals(const Stage& stage);

}  // namespace convoy::cuda
