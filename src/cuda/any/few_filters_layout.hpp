// The few_filters family's host arithmetic: what fits, how channels lie over lanes and pixels over
// strips, weights. Needs no CUDA.
#pragma once

#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "cuda/limits.hpp"
#include "math/host_device.hpp"

namespace convoy::cuda {

/// Strips are counted by their layout.
inline constexpr Limits few_filters_limits{};
/// Strips of a run, and pixels of x from a row's first to where a strip's last one would lie.
inline constexpr Index few_filters_positions = Index{1} << 30;

constexpr int few_filters_most = 8;             // K, at most
constexpr int few_filters_least_channels = 16;  // fewer leave lanes without any
constexpr int few_filters_pixels = 8;           // of a strip: output pixels side by side in a row
/// Of a CTA, at most: the more filters, the more registers a thread needs for their sums.
constexpr int few_filters_threads(int filters) {
  return filters > 4 ? 384 : 512;
}
constexpr int few_filters_least_lanes =
    8;  // as many as a strip has pixels, whose sums they end with

/// How a stage's channels lie over lanes. It decides the order of summation, so it follows from C
/// alone.
struct FewFiltersChannels {
  int vector = 0;  // neighbouring channels of a lane, which one load brings: 4 or 1
  int lanes = 0;   // of a strip: 8, 16 or 32 of a warp
  int blocks = 0;  // of lanes * vector channels
  int of_block() const { return lanes * vector; }
  /// Floats from a filter's weights to the next one's, of a tap and a block: as for a whole warp,
  /// so that the kernel knows it.
  int weights_apart() const { return 32 * vector; }
};

struct FewFiltersLayout {
  FewFiltersChannels channels;
  int filters = 0;     // K, up to what the kernel is compiled for
  int row_taps = 0;    // 3, 5, 7: what is loaded serves all taps of a filter's row; 0: one
  bool flat = false;   // a 1x1: all pixels of the batch are one row
  Index p = 0, q = 0;  // rows and columns of the output; flat: 1 and the batch's pixels
  Index strips = 0;    // of a row
  Index images = 0;
  Index all_strips() const { return images * p * strips; }
};

/// Where a strip lies. Strips are numbered down the rows first, so that those of a CTA share input
/// rows; then along a row; then from image to image.
struct FewFiltersPlace {
  int n, p, q;  // q: of its first pixel
};
CONVOY_HD FewFiltersPlace few_filters_place(unsigned strip, unsigned rows, unsigned strips) {
  const unsigned column = strip / rows;
  return {static_cast<int>(column / strips), static_cast<int>(strip % rows),
          static_cast<int>(column % strips) * few_filters_pixels};
}

/// The strip that a thread of a CTA of `threads` shares with the other lanes; 1 << log_lanes of
/// them.
CONVOY_HD unsigned few_filters_strip(unsigned block, unsigned threads, unsigned thread,
                                     int log_lanes) {
  return block * (threads >> log_lanes) + (thread >> log_lanes);
}

/// The pixel of a strip whose sum a lane ends with. Lanes exchange halves of their pixels with the
/// neighbour, then with the second next, then with the fourth next: the first decides by half the
/// strip. Lanes from 8 on hold what lane % 8 does.
CONVOY_HD int few_filters_pixel_of(int lane) {
  return (lane & 1) * 4 + (lane & 2) + (lane >> 2 & 1);
}

std::string few_filters_tile_name(int threads);

inline constexpr Serves served_by_few_filters{
    .types = Types(DType::f32, DType::f32),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = false,
    .bias = true,
    .norm = false,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = PoolForm::none,
    .pools_first = false,
    .keep = nothing,
};

/// Adds each reason why the family can't run a legal stage beyond what it does not serve.
void refuse_few_filters(const Stage& stage, Reasons& why);
/// Every reason why the family can't run a legal stage, for callers that have no Kernel; empty: it
/// can.
Reasons few_filters_refusals(const Stage& stage);
FewFiltersChannels few_filters_channels(Index c);
FewFiltersLayout few_filters_layout(const Stage& stage);
/// [K,R,S,C] -> [blocks][R][S][filters][weights_apart], zeros where there is nothing.
std::vector<float> few_filters_weights(const Stage& stage, const float* w);
/// Threads of a CTA, from which to choose.
std::vector<int> few_filters_tiles(const Stage& stage);
/// Predicted seconds of a run.
double few_filters_seconds(const Stage& stage, int threads, const Machine& machine);

}  // namespace convoy::cuda
