#include "cpu/spike/spike_events.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/spike/spike_events.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: this file is compiled once for each instruction set.
#include <hwy/highway.h>

#include "cpu/spike/spike_neuron-inl.hpp"

#ifndef CONVOY_CPU_SPIKE_EVENTS_ONCE
#define CONVOY_CPU_SPIKE_EVENTS_ONCE
#include <algorithm>
#include <bit>
#include <cstring>

#include "math/divide.hpp"

namespace convoy::cpu {

struct SpikeEvents::Params {
  const float* w;
  const float* bias;
  const Slice* slices;
  Index slice_count, slice_rows;
  Index steps, k;
  Index n, out_h, out_w, pool;
  bool increments;
  Neuron neuron;
  // Input, in bytes: a step, an image, an output pixel down and right.
  const std::uint8_t* in;
  Index in_step, in_image, in_row, in_column;
  std::uint8_t* out;
  Index out_step, out_image, out_row, out_column, out_origin;
  float* mean;  // [n,k]; null: spikes are wanted
  float* sums;  // [step][pixel of a tile][filter of a block]
  Index tile_rows;
};

/// Filters of a block: their sums are in registers.
inline constexpr Index event_block = 64;
/// Weights of a block that stay in an L2 from tile to tile.
inline constexpr Index event_l2_bytes = Index{512} << 10;

}  // namespace convoy::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {
namespace {

using Params = SpikeEvents::Params;

/// Neighbouring rows of output windows, of one image or of several.
struct EventTile {
  Index first, rows;
};

/// Weights to come, fetched a few lines a pixel: the order in which their rows are read is one that
/// no prefetcher sees.
struct Ahead {
  const float* at;
  Index lines;

  HWY_INLINE void fetch() {
    for (Index line = 0; line < lines; ++line, at += 16) __builtin_prefetch(at, 0, 2);
  }
};

/// sums[pixel][kWidth] += weights of the `bits` that are set at `in`, for pixels that lie in_pitch
/// bytes apart.
template <int kWidth>
HWY_INLINE void add_events(const float* w, std::uint64_t bits, const std::uint8_t* in,
                           Index in_pitch, Index pixels, float* sums, Ahead& ahead) {
  const Float d;
  constexpr int kVecs = kWidth / kLanes;
  for (Index pixel = 0; pixel < pixels; ++pixel, in += in_pitch, sums += kWidth) {
    ahead.fetch();
    std::uint64_t left;
    std::memcpy(&left, in, sizeof left);
    left &= bits;
    if (left == 0) continue;
    Vec sum[kVecs];
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) sum[v] = hn::Load(d, sums + v * kLanes);
    do {
      const float* const row = w + std::countr_zero(left) * kWidth;
      left &= left - 1;
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) sum[v] = hn::Add(sum[v], hn::Load(d, row + v * kLanes));
    } while (left != 0);
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) hn::Store(sum[v], d, sums + v * kLanes);
  }
}

/// The sums of a tile and a block of filters.
template <int kWidth>
void sum_tile(const Params& p, const EventTile& tile, const float* w) {
  const Index columns = p.out_w * p.pool;
  const Index pixels = p.steps * tile.rows * p.pool * columns;
  std::memset(p.sums, 0, static_cast<std::size_t>(pixels * kWidth) * sizeof(float));
  // Images of one output are neighbouring pixels.
  const bool dots = p.out_h * p.out_w * p.pool == 1;
  // Of a block that stays in an L2 the next slice is there.
  const bool streamed = p.slice_rows * kWidth * Index{sizeof(float)} > event_l2_bytes;
  for (Index i = 0; i < p.slice_count; ++i) {
    const SpikeEvents::Slice slice = p.slices[i];
    const float* const next = w + slice.rows * kWidth;
    const Index lines_of_pixel = math::ceil_div(slice.rows * kWidth / 16, pixels);
    // Few pixels don't read all of it.
    const bool fetch = streamed && lines_of_pixel <= 32;
    Ahead ahead{next, fetch ? lines_of_pixel : 0};
    float* sums = p.sums;
    for (Index t = 0; t < p.steps; ++t) {
      const std::uint8_t* const step = p.in + t * p.in_step + slice.at;
      if (dots) {
        add_events<kWidth>(w, slice.bits, step + tile.first * p.in_image, p.in_image, tile.rows,
                           sums, ahead);
        sums += tile.rows * kWidth;
        continue;
      }
      for (Index row = tile.first; row < tile.first + tile.rows; ++row) {
        const std::uint8_t* line =
            step + row / p.out_h * p.in_image + row % p.out_h * p.pool * p.in_row;
        for (Index y = 0; y < p.pool; ++y, line += p.in_row, sums += columns * kWidth)
          add_events<kWidth>(w, slice.bits, line, p.in_column, columns, sums, ahead);
      }
    }
    w = next;
  }
}

/// The spikes of a window of kPixels pixels and 16 filters: all steps. `sums` are those of the
/// window's first pixel in step 0; `pixel` says where the others are.
template <int kPixels>
HWY_INLINE void fire(const Params& p, const float* sums, const Index (&pixel)[4], Index sums_step,
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
  for (Index t = 0; t < p.steps; ++t) {
    unsigned bits = 0;
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      auto fired = hn::Ne(hn::Zero(d), hn::Zero(d));  // none
#pragma GCC unroll 4
      for (int i = 0; i < kPixels; ++i) {
        const float* const at = sums + t * sums_step + pixel[i] + v * kLanes;
        Vec sum = hn::Load(d, at);
        if (p.increments && t > 0) sum = hn::Add(hn::Load(d, at - sums_step), sum);
        fired = hn::Or(fired, step(p.neuron, hn::Add(sum, bias[v]), membrane[i][v]));
      }
      bits |= bits_of(fired) << (v * kLanes);
    }
    std::uint8_t* const at = to + t * p.out_step;
    at[0] = static_cast<std::uint8_t>(bits);
    if (both_bytes) at[1] = static_cast<std::uint8_t>(bits >> 8);
  }
}

/// From the sums of a tile and of the filters from `k` on to spikes.
template <int kWidth>
void fire_tile(const Params& p, const EventTile& tile, Index k) {
  const Index columns = p.out_w * p.pool, out_bytes = (p.k + 7) / 8;
  const Index sums_step = tile.rows * p.pool * columns * kWidth;
  const Index pixel[4] = {0, kWidth, columns * kWidth, (columns + 1) * kWidth};
  for (Index row = 0; row < tile.rows; ++row) {
    const Index image = (tile.first + row) / p.out_h, out_y = (tile.first + row) % p.out_h;
    const float* sums = p.sums + row * p.pool * columns * kWidth;
    std::uint8_t* to = p.out + image * p.out_image + p.out_origin + out_y * p.out_row + k / 8;
    for (Index x = 0; x < p.out_w; ++x, sums += p.pool * kWidth, to += p.out_column)
      for (Index filter = 0; filter < kWidth; filter += 16) {
        const bool both_bytes = (k + filter) / 8 + 1 < out_bytes;
        if (p.pool == 2)
          fire<4>(p, sums + filter, pixel, sums_step, p.bias + k + filter, to + filter / 8,
                  both_bytes);
        else
          fire<1>(p, sums + filter, pixel, sums_step, p.bias + k + filter, to + filter / 8,
                  both_bytes);
      }
  }
}

/// The mean over the steps, of images of one output.
template <int kWidth>
void average_tile(const Params& p, const EventTile& tile, Index k) {
  const Index filters = std::min<Index>(kWidth, p.k - k);
  for (Index row = 0; row < tile.rows; ++row) {
    float* const mean = p.mean + (tile.first + row) * p.k + k;
    for (Index i = 0; i < filters; ++i) {
      float sum = 0, all = 0;
      for (Index t = 0; t < p.steps; ++t) {
        const float own = p.sums[(t * tile.rows + row) * kWidth + i];
        sum = p.increments && t > 0 ? sum + own : own;
        const float y = sum + p.bias[k + i];
        all = t == 0 ? y : all + y;
      }
      mean[i] = p.steps > 1 ? all / static_cast<float>(p.steps) : all;
    }
  }
}

template <int kWidth>
void run_filters(const Params& p, Index k) {
  const Index rows = p.n * p.out_h;
  const float* const w = p.w + k * p.slice_rows;
  for (Index first = 0; first < rows; first += p.tile_rows) {
    const EventTile tile{first, std::min(p.tile_rows, rows - first)};
    sum_tile<kWidth>(p, tile, w);
    if (p.mean)
      average_tile<kWidth>(p, tile, k);
    else
      fire_tile<kWidth>(p, tile, k);
  }
}

}  // namespace

void run_spike_events(const Params& params) {
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

HWY_EXPORT(run_spike_events);

namespace {

using math::round_up;

// Tables of groups of bits are faster up to here, of eight bits in spike_conv, of four in
// spike_linear (docs/lab/cpu-spiking.md).
constexpr Index most_conv_table_bytes = Index{2} << 20, most_linear_table_bytes = Index{4} << 20;
// With fewer a pixel's sums are loaded and stored for too few additions.
constexpr Index least_channels = 32;
// Sums of a tile: an L2 holds them beside a block's weights. Those of a linear layer are more, as
// its weights come from memory for each tile.
constexpr Index conv_tile_floats = Index{16} << 10, linear_tile_floats = Index{64} << 10;

bool is_linear(const Stage& stage) {
  return stage.h == 1 && stage.w == 1 && stage.r == 1 && stage.s == 1;
}

/// Sums of a row of windows and a block of filters.
Size floats_of_row(const Stage& stage, Index steps) {
  const Index pixels = stage.pool ? 4 : 1;
  return Size(steps) * shapes_of(stage).out_w * pixels *
         std::min(event_block, round_up(stage.k, Index{16}));
}

/// Rows of windows in a tile.
Index rows_of_tile(const Stage& stage, Index steps) {
  const Index floats = is_linear(stage) ? linear_tile_floats : conv_tile_floats;
  return std::max<Index>(1, floats / floats_of_row(stage, steps).value());
}

}  // namespace

bool SpikeEvents::pays(const Stage& stage) {
  const Size vectors = Size((stage.k + 15) / 16);
  constexpr Index vector_bytes = 64;
  if (is_linear(stage))
    return !(vectors * ((stage.c + 3) / 4) * 16 * vector_bytes).fits(most_linear_table_bytes);
  const Size groups = Size(stage.r) * stage.s * ((stage.c + 7) / 8);
  return stage.c >= least_channels &&
         !(vectors * groups * 256 * vector_bytes).fits(most_conv_table_bytes);
}

SpikeEvents::SpikeEvents(const Stage& stage, Index steps, const float* w, const float* bias,
                         const SpikeLayout& in, const SpikeLayout& out)
    : in_(in),
      out_(out),
      neuron_(neuron_of(stage)),
      steps_(steps),
      k_(stage.k),
      pool_(stage.pool ? 2 : 1),
      tile_rows_(rows_of_tile(stage, steps)),
      bias_(padded_bias(bias, stage.k)) {
  const Shapes shapes = shapes_of(stage);
  out_h_ = shapes.out_h;
  out_w_ = shapes.out_w;
  in_row_ = stage.stride.h * in.row_bytes();
  in_column_ = stage.stride.w * in.bytes();
  const Index channels = is_linear(stage) ? in.image_bytes() * 8 : stage.c;
  const Index taps = stage.r * stage.s;
  for (Index r = 0; r < stage.r; ++r)
    for (Index s = 0; s < stage.s; ++s)
      for (Index c = 0; c < channels; c += 64) {
        const Index rows = std::min<Index>(64, channels - c);
        const Index tap = r * stage.dil.h * in.row_bytes() + s * stage.dil.w * in.bytes();
        slices_.push_back({tap + c / 8, ~std::uint64_t{0} >> (64 - rows), rows});
      }
  slice_rows_ = taps * channels;
  const Index padded = round_up(k_, Index{16});
  w_ = Buffer<float>(static_cast<std::size_t>(slice_rows_ * padded));
  float* to = w_.data();
  for (Index k = 0; k < padded; k += event_block) {
    const Index width = std::min(event_block, padded - k);
    for (Index tap = 0; tap < taps; ++tap)
      for (Index c = 0; c < channels; ++c, to += width)
        for (Index i = 0; i < width; ++i)
          to[i] = k + i < k_ ? w[((k + i) * taps + tap) * channels + c] : 0.0F;
  }
}

Size SpikeEvents::scratch_floats(const Stage& stage, Index steps) {
  return floats_of_row(stage, steps) * rows_of_tile(stage, steps);
}

SpikeEvents::Params SpikeEvents::params(Index n, const SpikeBlock& in, float* scratch) const {
  Params p{};
  p.w = w_.data();
  p.bias = bias_.data();
  p.slices = slices_.data();
  p.slice_count = static_cast<Index>(slices_.size());
  p.slice_rows = slice_rows_;
  p.steps = steps_;
  p.k = k_;
  p.n = n;
  p.out_h = out_h_;
  p.out_w = out_w_;
  p.pool = pool_;
  p.increments = in_.increments;
  p.neuron = neuron_;
  p.in = in.data;
  p.in_step = in.step;
  p.in_image = in_.image_bytes();
  p.in_row = in_row_;
  p.in_column = in_column_;
  p.sums = scratch;
  p.tile_rows = tile_rows_;
  return p;
}

void SpikeEvents::run(Index n, const SpikeBlock& in, const SpikeBlock& out, float* scratch) const {
  Params p = params(n, in, scratch);
  p.out = out.data;
  p.out_step = out.step;
  p.out_image = out_.image_bytes();
  p.out_row = out_.row_bytes();
  p.out_column = out_.bytes();
  p.out_origin = out_.origin();
  HWY_DYNAMIC_DISPATCH(run_spike_events)(p);
}

void SpikeEvents::run_mean(Index n, const SpikeBlock& in, float* mean, float* scratch) const {
  Params p = params(n, in, scratch);
  p.mean = mean;
  HWY_DYNAMIC_DISPATCH(run_spike_events)(p);
}

}  // namespace convoy::cpu
#endif
