// The fma family's host arithmetic: what fits, tiles, sizes, packed weights, how long it should
// take. Needs no CUDA.
#pragma once

#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "cuda/any/fma_index.hpp"
#include "cuda/limits.hpp"

namespace convoy::cuda {

constexpr int fma_threads = 128;  // of a CTA

/// Rows are numbered with 32 bits, also those of the last tile that do not exist. No tile is
/// smaller than 64 pixels by 16 filters; tiles are counted as if they were of one pixel.
inline constexpr Limits fma_limits{.rows = (Index{1} << 31) - (1 << 16),
                                   .tiles = (Index{1} << 31) - (1 << 16),
                                   .tile_rows = 64,
                                   .tile_filters = 16,
                                   .products = (Index{1} << 31) - (1 << 16) - fma_depth};

/// A CTA's rows (pixels) by filters, and those of a thread, in fours.
struct FmaTile {
  int m = 0, n = 0, thread_m = 0, thread_n = 0;
  int ctas = 3;  // of a multiprocessor, at least
  constexpr bool operator==(const FmaTile&) const = default;
  constexpr bool whole() const { return m / thread_m * (n / thread_n) == fma_threads; }
};
constexpr FmaTile fma_large{128, 64, 8, 8}, fma_medium{128, 32, 8, 4}, fma_small{64, 64, 4, 8},
    fma_narrow{256, 16, 8, 4};
static_assert(fma_large.whole() && fma_medium.whole() && fma_small.whole() && fma_narrow.whole());

/// A stage's numbers, of `stage.n` images.
struct FmaSizes {
  FmaRows rows;
  FmaTaps taps;
  int r = 1, steps = 0;
  int group_c = 0, group_k = 0;  // channels and filters of a group
  int padded_k = 0;              // filters of a group in packed weights: whole fours
  int m_tiles = 0, n_tiles = 0;  // n_tiles: of all groups
};

std::string fma_tile_name(const FmaTile& tile);

inline constexpr Serves served_by_fma{
    .types = {{DType::f32, DType::f16, DType::bf16, DType::u8},
              {DType::f32, DType::f16, DType::bf16}},
    .layouts = {Layout::nhwc, Layout::nchw},
    .strides = true,
    .dilation = true,
    .groups = true,
    .bias = true,
    .norm = true,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = none_or_max2,
    .pools_first = false,
    .keep = nothing,
};

/// Adds each reason why the family can't run a legal stage beyond what it does not serve.
void refuse_fma(const Stage& stage, Reasons& why);
/// Every reason why the family can't run a legal stage, for callers that have no Kernel; empty: it
/// can.
Reasons fma_refusals(const Stage& stage);
std::vector<FmaTile> fma_tiles(const Stage& stage);
FmaSizes fma_sizes(const Stage& stage, const FmaTile& tile);
/// [K,R,S,C/groups] -> [group][product, whole steps][filter, whole fours], the rest 0.
std::vector<float> fma_weights(const Stage& stage, const float* w);
/// Predicted seconds of a run, and the share of its multiply-adds that is thrown away.
double fma_seconds(const Stage& stage, const FmaTile& tile, const Machine& machine);
double fma_waste(const Stage& stage, const FmaTile& tile);

}  // namespace convoy::cuda
