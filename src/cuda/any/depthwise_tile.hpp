// The depthwise family's host arithmetic: what fits, tiles, how threads lie over an image. Needs no
// CUDA.
#pragma once

#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "cuda/limits.hpp"

namespace convoy::cuda {

/// A tile's pixels beyond the last are not computed, where they would lie is. The products are all
/// weights; CTAs are counted by their layout.
inline constexpr Limits depthwise_limits{.products = (Index{1} << 31) - 1,
                                         .strides = Index{1} << 30};

constexpr int depthwise_threads = 128;  // of a CTA, at most
constexpr int depthwise_bytes = 8;      // of neighbouring channels that a thread takes at most

/// Output pixels of a thread, before the pool.
struct DepthwiseTile {
  int rows = 0, columns = 0;
};

/// How threads lie over the convolution's output: in a CTA `lanes` vectors of channels by `across`
/// by `down` tiles.
struct DepthwiseLayout {
  int rows = 0, columns = 0;  // of the convolution that y is made of
  int lanes = 0, across = 0, down = 0;
  int channel_blocks = 0, column_blocks = 0, row_blocks = 0;  // CTAs of an image
};

/// Neighbouring channels of a thread: `depthwise_bytes` of them where C is a multiple of that, else
/// one.
int depthwise_channels(const Stage& stage);
/// Whether the filter's size and strides are compiled in; else a loop over taps runs it.
bool is_compiled_in(const Stage& stage);

inline constexpr Serves served_by_depthwise{
    .types = halves | Types(DType::f32, DType::f32),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = true,
    .bias = true,
    .norm = false,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = none_or_any_max2,
    .pools_first = false,
    .keep = nothing,
};

/// Adds each reason why the family can't run a legal stage beyond what it does not serve.
void refuse_depthwise(const Stage& stage, Reasons& why);
/// Every reason why the family can't run a legal stage, for callers that have no Kernel; empty: it
/// can.
Reasons depthwise_refusals(const Stage& stage);
std::string depthwise_tile_name(const DepthwiseTile& tile);
std::vector<DepthwiseTile> depthwise_tiles(const Stage& stage);
DepthwiseLayout depthwise_layout(const Stage& stage, const DepthwiseTile& tile);
/// Predicted seconds of a run.
double depthwise_seconds(const Stage& stage, const DepthwiseTile& tile, const Machine& machine);

}  // namespace convoy::cuda
