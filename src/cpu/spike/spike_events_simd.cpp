// The loops of `spike_events`, compiled once for each instruction set. Vectors hold filters.
#include "cpu/spike/spike_events_params.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/spike/spike_events_simd.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: this file is compiled once for each instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "cpu/spike/spike_neuron-inl.hpp"
#include "math/divide.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {
namespace {

using Params = SpikeEvents::Params;

/// Weights of a block that stay in an L2 from tile to tile.
constexpr Index l2_bytes = Index{512} << 10;
constexpr Index group_patterns = patterns_of(event_steps);

/// Neighbouring rows of output windows, of one image or of several, and columns of them.
struct EventTile {
  Index first, rows, column, columns;
};

/// Pixels of a row of a tile, and of all of it.
HWY_INLINE Index pixels_across(const Params& p, const EventTile& tile) {
  return tile.columns * p.pool;
}
HWY_INLINE Index pixels_of(const Params& p, const EventTile& tile) {
  return tile.rows * p.pool * pixels_across(p, tile);
}

/// Weights to come, fetched a few lines a pixel: the order in which their rows are read is one that
/// no prefetcher sees.
struct Ahead {
  const float* at;
  Index lines;

  HWY_INLINE void fetch() {
    for (Index line = 0; line < lines; ++line, at += 16) __builtin_prefetch(at, 0, 2);
  }
};

/// sums[pixel][pattern][kWidth] += weights of the `bits` that are set at `in` in the steps of the
/// pattern and in no other, for pixels that lie in_pitch bytes apart.
template <int kWidth, int kSteps>
HWY_INLINE void add_events(const Params& p, const float* w, std::uint64_t bits,
                           const std::uint8_t* in, Index in_pitch, Index pixels, float* sums,
                           Ahead& ahead) {
  const Float d;
  constexpr int kVecs = kWidth / kLanes, kPatterns = (1 << kSteps) - 1;
  for (Index pixel = 0; pixel < pixels; ++pixel, in += in_pitch, sums += kPatterns * kWidth) {
    ahead.fetch();
    std::uint64_t fired[kSteps], any = 0;
#pragma GCC unroll 4
    for (int t = 0; t < kSteps; ++t) {
      std::memcpy(&fired[t], in + t * p.in_step, sizeof fired[t]);
      if constexpr (kSteps > 1)
        if (t == 1 && p.increments) fired[1] |= fired[0];
      any |= fired[t];
    }
    any &= bits;
    while (any != 0) {
      const int first = std::countr_zero(any);
      std::uint64_t left = any;
      std::size_t pattern = 0;
#pragma GCC unroll 4
      for (int t = 0; t < kSteps; ++t) {
        const std::uint64_t fires = fired[t] >> first & 1;
        pattern |= fires << t;
        left &= fired[t] ^ (fires - 1);  // those that do as the first one does
      }
      any &= ~left;
      float* const to = sums + (pattern - 1) * kWidth;
      Vec sum[kVecs];
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) sum[v] = hn::Load(d, to + v * kLanes);
      do {
        const float* const row = w + std::countr_zero(left) * kWidth;
        left &= left - 1;
#pragma GCC unroll 16
        for (int v = 0; v < kVecs; ++v) sum[v] = hn::Add(sum[v], hn::Load(d, row + v * kLanes));
      } while (left != 0);
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) hn::Store(sum[v], d, to + v * kLanes);
    }
  }
}

/// From the sums of patterns to those of steps, which take the place of the first patterns'.
template <int kWidth, int kSteps>
HWY_INLINE void add_patterns(Index pixels, float* sums) {
  const Float d;
  constexpr int kPatterns = (1 << kSteps) - 1;
  for (Index pixel = 0; pixel < pixels; ++pixel, sums += kPatterns * kWidth)
    for (int at = 0; at < kWidth; at += kLanes) {
      Vec step[kSteps];
#pragma GCC unroll 4
      for (int t = 0; t < kSteps; ++t) {
        step[t] = hn::Zero(d);
#pragma GCC unroll 16
        for (int pattern = 1; pattern <= kPatterns; ++pattern)
          if (pattern >> t & 1)
            step[t] = hn::Add(step[t], hn::Load(d, sums + (pattern - 1) * kWidth + at));
      }
#pragma GCC unroll 4
      for (int t = 0; t < kSteps; ++t) hn::Store(step[t], d, sums + t * kWidth + at);
    }
}

/// What a slice of the weights adds to the sums of a tile, in kSteps steps from `in` on.
template <int kWidth, int kSteps>
void add_slice(const Params& p, const EventTile& tile, const SpikeEvents::Slice& slice,
               const float* w, const std::uint8_t* in, float* sums, Ahead& ahead) {
  constexpr int kPatterns = (1 << kSteps) - 1;
  in += slice.at;
  // Images of one output are neighbouring pixels.
  if (p.out_h * p.out_w * p.pool == 1) {
    in += tile.first * p.in_image;
    return add_events<kWidth, kSteps>(p, w, slice.bits, in, p.in_image, tile.rows, sums, ahead);
  }
  const Index columns = pixels_across(p, tile);
  in += tile.column * p.pool * p.in_column;
  for (Index row = tile.first; row < tile.first + tile.rows; ++row) {
    const std::uint8_t* line = in + row / p.out_h * p.in_image + row % p.out_h * p.pool * p.in_row;
    for (Index y = 0; y < p.pool; ++y, line += p.in_row, sums += columns * kPatterns * kWidth)
      add_events<kWidth, kSteps>(p, w, slice.bits, line, p.in_column, columns, sums, ahead);
  }
}

/// What remains of a function of the number of steps where that is known: kSteps as the argument.
template <class Call>
HWY_INLINE void with_steps(Index steps, const Call& call) {
  static_assert(event_steps == 4);
  if (steps >= 4)
    call(std::integral_constant<int, 4>());
  else if (steps == 3)
    call(std::integral_constant<int, 3>());
  else if (steps == 2)
    call(std::integral_constant<int, 2>());
  else
    call(std::integral_constant<int, 1>());
}

/// The sums of a tile and a block of filters.
template <int kWidth>
void sum_tile(const Params& p, const EventTile& tile, const float* w) {
  const Index pixels = pixels_of(p, tile), group = pixels * group_patterns * kWidth;
  const Index floats = pixels * patterns_of(p.steps) * kWidth;
  std::memset(p.sums, 0, static_cast<std::size_t>(floats) * sizeof(float));
  // Of a block that stays in an L2 the next slice is there.
  const bool streamed = p.slice_rows * kWidth * Index{sizeof(float)} > l2_bytes;
  for (Index i = 0; i < p.slice_count; ++i) {
    const SpikeEvents::Slice& slice = p.slices[i];
    const float* const next = w + slice.rows * kWidth;
    const Index lines_of_pixel = math::ceil_div(slice.rows * kWidth / 16, pixels);
    // Few pixels don't read all of it.
    Ahead ahead{next, streamed && lines_of_pixel <= 32 ? lines_of_pixel : 0};
    float* sums = p.sums;
    for (Index t = 0; t < p.steps; t += event_steps, sums += group) {
      with_steps(p.steps - t, [&](auto steps) {
        add_slice<kWidth, steps.value>(p, tile, slice, w, p.in + t * p.in_step, sums, ahead);
      });
      ahead.lines = 0;  // in the first group alone
    }
    w = next;
  }
  float* sums = p.sums;
  for (Index t = 0; t < p.steps; t += event_steps, sums += group)
    with_steps(p.steps - t, [&](auto steps) { add_patterns<kWidth, steps.value>(pixels, sums); });
}

/// Where the sums of a tile's step lie, and from pixel to pixel.
struct StepSums {
  const float* at;
  Index pitch;
};
template <int kWidth>
HWY_INLINE StepSums sums_of(const Params& p, Index pixels, Index t) {
  const Index group = t / event_steps, steps = std::min(p.steps - group * event_steps, event_steps);
  return {p.sums + (group * pixels * group_patterns + t % event_steps) * kWidth,
          patterns_of(steps) * kWidth};
}

/// The spikes of a window of kPixels pixels and 16 filters: all steps. `window`: its first pixel,
/// of the tile's `pixels`; below one lies another `columns` later.
template <int kWidth, int kPixels>
HWY_INLINE void fire(const Params& p, Index pixels, Index window, Index columns, Index filter,
                     const float* bias_of, std::uint8_t* to, bool both_bytes) {
  const Float d;
  constexpr int kVecs = 16 / kLanes;
  Vec membrane[kPixels][kVecs], bias[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) bias[v] = hn::Load(d, bias_of + v * kLanes);
#pragma GCC unroll 4
  for (int i = 0; i < kPixels; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) membrane[i][v] = hn::Zero(d);
  for (Index t = 0; t < p.steps; ++t, to += p.out.step) {
    const StepSums sums = sums_of<kWidth>(p, pixels, t);
    const float* const at = sums.at + window * sums.pitch + filter;
    const Index pixel[4] = {0, sums.pitch, columns * sums.pitch, (columns + 1) * sums.pitch};
    unsigned bits = 0;
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      auto fired = hn::Ne(hn::Zero(d), hn::Zero(d));  // none
#pragma GCC unroll 4
      for (int i = 0; i < kPixels; ++i) {
        const Vec sum = hn::Load(d, at + pixel[i] + v * kLanes);
        fired = hn::Or(fired, step(p.neuron, hn::Add(sum, bias[v]), membrane[i][v]));
      }
      bits |= bits_of(fired) << (v * kLanes);
    }
    to[0] = static_cast<std::uint8_t>(bits);
    if (both_bytes) to[1] = static_cast<std::uint8_t>(bits >> 8);
  }
}

/// From the sums of a tile and of the filters from `k` on to spikes.
template <int kWidth>
void fire_tile(const Params& p, const EventTile& tile, Index k) {
  const Index columns = pixels_across(p, tile), pixels = pixels_of(p, tile);
  const Index out_bytes = (p.k + 7) / 8;
  for (Index row = 0; row < tile.rows; ++row) {
    const Index image = (tile.first + row) / p.out_h, out_y = (tile.first + row) % p.out_h;
    std::uint8_t* to =
        p.out.data + image * p.out.image + out_y * p.out.row + tile.column * p.out.column + k / 8;
    for (Index x = 0; x < tile.columns; ++x, to += p.out.column)
      for (Index filter = 0; filter < kWidth; filter += 16) {
        const bool both_bytes = (k + filter) / 8 + 1 < out_bytes;
        const Index window = row * p.pool * columns + x * p.pool;
        const float* const bias = p.bias + k + filter;
        if (p.pool == 2)
          fire<kWidth, 4>(p, pixels, window, columns, filter, bias, to + filter / 8, both_bytes);
        else
          fire<kWidth, 1>(p, pixels, window, columns, filter, bias, to + filter / 8, both_bytes);
      }
  }
}

/// The mean over the steps, of images of one output.
template <int kWidth>
void average_tile(const Params& p, const EventTile& tile, Index k) {
  const Index filters = std::min<Index>(kWidth, p.k - k);
  for (Index row = 0; row < tile.rows; ++row) {
    float* const mean = p.mean + (tile.first + row) * p.k + k;
    for (Index t = 0; t < p.steps; ++t) {
      const StepSums sums = sums_of<kWidth>(p, tile.rows, t);
      for (Index i = 0; i < filters; ++i) {
        const float y = sums.at[row * sums.pitch + i] + p.bias[k + i];
        mean[i] = t == 0 ? y : mean[i] + y;
      }
    }
    if (p.steps > 1)
      for (Index i = 0; i < filters; ++i) mean[i] /= static_cast<float>(p.steps);
  }
}

template <int kWidth>
void run_filters(const Params& p, Index k) {
  const Index rows = p.n * p.out_h;
  const float* const w = p.w + k * p.slice_rows;
  for (Index row = 0; row < rows; row += p.tile_rows)
    for (Index column = 0; column < p.out_w; column += p.tile_columns) {
      const EventTile tile{row, std::min(p.tile_rows, rows - row), column,
                           std::min(p.tile_columns, p.out_w - column)};
      sum_tile<kWidth>(p, tile, w);
      if (p.mean)
        average_tile<kWidth>(p, tile, k);
      else
        fire_tile<kWidth>(p, tile, k);
    }
}

}  // namespace

void run_spike_events_here(const Params& params) {
  const Params p = params;  // a copy, which the bytes written can't alias
  for (Index k = 0; k < p.k; k += event_block) {
    if (p.k - k > 48)
      run_filters<64>(p, k);
    else if (p.k - k > 32)
      run_filters<48>(p, k);
    else if (p.k - k > 16)
      run_filters<32>(p, k);
    else
      run_filters<16>(p, k);
  }
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu {

HWY_EXPORT(run_spike_events_here);
void run_spike_events(const SpikeEvents::Params& p) {
  HWY_DYNAMIC_DISPATCH(run_spike_events_here)(p);
}

}  // namespace convoy::cpu
#endif
