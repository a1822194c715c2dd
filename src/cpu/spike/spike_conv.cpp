#include "cpu/spike/spike_conv.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/spike/spike_conv.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: this file is compiled once for each instruction set.
#include <hwy/highway.h>

#include "cpu/spike/spike_neuron-inl.hpp"

#ifndef CONVOY_CPU_SPIKE_CONV_ONCE
#define CONVOY_CPU_SPIKE_CONV_ONCE
namespace convoy::cpu {

struct SpikeConv::Params {
  const float* table;
  const float* bias;
  const std::int32_t* tap_offset;
  Index taps, k, filter_blocks;
  Index steps;
  Index n, out_h, out_w;
  bool increments;
  Neuron neuron;
  // Input, in bytes: a step, an image, one window down and right, one pixel down and right.
  const std::uint8_t* in;
  Index in_step, in_image, in_window_row, in_window_column, in_row, in_column;
  SpikeOutput out;
};

}  // namespace convoy::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {

using Params = SpikeConv::Params;
constexpr int kVecs = 16 / kLanes;

/// Sums of kPixels pixels and 16 filters over every tap of one step.
template <int kPixels, int kBits>
HWY_INLINE void sum_taps(const Params& p, const float* table, const std::uint8_t* window,
                         Vec (&sum)[kPixels][kVecs]) {
  const Float d;
  const Index pixel[4] = {0, p.in_column, p.in_row, p.in_row + p.in_column};
#pragma GCC unroll 4
  for (int i = 0; i < kPixels; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sum[i][v] = hn::Zero(d);
  const std::int32_t* const end = p.tap_offset + p.taps;
  for (const std::int32_t* offset = p.tap_offset; offset != end; ++offset) {
    const std::uint8_t* const at = window + *offset;
#pragma GCC unroll 4
    for (int i = 0; i < kPixels; ++i) {
      const std::size_t byte = at[pixel[i]];
      if constexpr (kBits == 8) {
        const float* row = table + byte * 16;
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v)
          sum[i][v] = hn::Add(sum[i][v], hn::Load(d, row + v * kLanes));
      } else {
        const float* low = table + (byte & 15) * 16;
        const float* high = table + 256 + (byte >> 4) * 16;
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v)
          sum[i][v] = hn::Add(hn::Add(sum[i][v], hn::Load(d, low + v * kLanes)),
                              hn::Load(d, high + v * kLanes));
      }
    }
    table += kBits == 8 ? 256 * 16 : 2 * 16 * 16;
  }
}

/// The spikes of a window of kPixels pixels and 16 filters: all steps.
template <int kPixels, int kBits>
HWY_INLINE void fire_window(const Params& p, const float* table, const Vec (&bias)[kVecs],
                            const std::uint8_t* window, std::uint8_t* to, bool both_bytes) {
  const Float d;
  Vec membrane[kPixels][kVecs], first[kPixels][kVecs];
#pragma GCC unroll 4
  for (int i = 0; i < kPixels; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) membrane[i][v] = hn::Zero(d);
  for (Index t = 0; t < p.steps; ++t) {
    Vec sum[kPixels][kVecs];
    sum_taps<kPixels, kBits>(p, table, window + t * p.in_step, sum);
    if (p.increments) {
#pragma GCC unroll 4
      for (int i = 0; i < kPixels; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) {
          if (t > 0) sum[i][v] = hn::Add(first[i][v], sum[i][v]);
          first[i][v] = sum[i][v];
        }
    }
    hn::Mask<Float> fired[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      fired[v] = step(p.neuron, hn::Add(sum[0][v], bias[v]), membrane[0][v]);
#pragma GCC unroll 4
      for (int i = 1; i < kPixels; ++i)
        fired[v] = hn::Or(fired[v], step(p.neuron, hn::Add(sum[i][v], bias[v]), membrane[i][v]));
    }
    unsigned bits = 0;
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) bits |= bits_of(fired[v]) << (v * kLanes);
    std::uint8_t* const at = to + t * p.out.step;
    at[0] = static_cast<std::uint8_t>(bits);
    if (both_bytes) at[1] = static_cast<std::uint8_t>(bits >> 8);
  }
}

template <int kPixels, int kBits>
void run_images_of(const Params& params) {
  const Params p = params;  // a copy, which the bytes written can't alias
  const Index out_bytes = (p.k + 7) / 8;
  const Index table_block = p.taps * (kBits == 8 ? 256 : 32) * 16;
  for (Index block = 0; block < p.filter_blocks; ++block) {
    const float* const table = p.table + block * table_block;
    const bool both_bytes = 2 * block + 1 < out_bytes;
    Vec bias[kVecs];
    for (int v = 0; v < kVecs; ++v) bias[v] = hn::Load(Float(), p.bias + block * 16 + v * kLanes);
    for (Index image = 0; image < p.n; ++image)
      for (Index row = 0; row < p.out_h; ++row) {
        const std::uint8_t* window = p.in + image * p.in_image + row * p.in_window_row;
        std::uint8_t* to = p.out.data + image * p.out.image + row * p.out.row + 2 * block;
        for (Index column = 0; column < p.out_w; ++column) {
          fire_window<kPixels, kBits>(p, table, bias, window, to, both_bytes);
          window += p.in_window_column;
          to += p.out.column;
        }
      }
  }
}

void run_spike_conv(const Params& p, bool pool, int bits) {
  if (pool && bits == 8) return run_images_of<4, 8>(p);
  if (pool) return run_images_of<4, 4>(p);
  if (bits == 8) return run_images_of<1, 8>(p);
  return run_images_of<1, 4>(p);
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/shared/refusals.hpp"

namespace convoy::cpu {

HWY_EXPORT(run_spike_conv);

namespace {

// Tables beyond this no longer live in a core's L2, and four-bit groups, an eighth
// of the size for twice the rows, win.
constexpr Index max_table_bytes = 768 << 10;

Index taps_of(const Stage& stage) {
  return stage.r * stage.s * ((stage.c + 7) / 8);
}

/// rows[value][16]: sums over the set bits of value of weight[bit][lane], adding the lowest bit
/// last, so that each row is one addition away from another.
void fill_rows(float* rows, int bits, const float (*weight)[16]) {
  for (int lane = 0; lane < 16; ++lane) rows[lane] = 0;
  for (int bit = 0; bit < bits; ++bit)
    for (int value = 1 << bit; value < 2 << bit; ++value)
      for (int lane = 0; lane < 16; ++lane)
        rows[value * 16 + lane] = rows[(value - (1 << bit)) * 16 + lane] + weight[bit][lane];
}

}  // namespace

void SpikeConv::refuse(const Stage& stage, Reasons& why) {
  Refusals(stage, why)
      .expect(stage.act.is_neuron(), "the activation", "none",
              "a neuron: spike_conv goes from spikes to spikes")
      .expect(!stage.hold, "hold", "asked for", "none: the spikes differ from step to step")
      .expect(stage.layout == Layout::nhwc, "the layout", "nchw", "nhwc");
}

SpikeConv::SpikeConv(const Stage& stage, const float* w, const float* bias, const SpikeLayout& in,
                     const SpikeLayout& out)
    : stage_(stage), in_(in), out_(out), neuron_(neuron_of(stage)) {
  const Shapes shapes = shapes_of(stage);
  out_h_ = shapes.out_h;
  out_w_ = shapes.out_w;
  const Index blocks = (stage.k + 15) / 16, taps = taps_of(stage);
  if (blocks * taps * 256 * 16 * Index{sizeof(float)} > max_table_bytes) group_bits_ = 4;
  const Index rows = group_bits_ == 8 ? 256 : 32;
  table_ = Buffer<float>(static_cast<std::size_t>(blocks * taps * rows * 16));
  bias_ = padded_bias(bias, stage.k);
  float* to = table_.data();
  for (Index block = 0; block < blocks; ++block) {
    for (Index r = 0; r < stage.r; ++r) {
      for (Index s = 0; s < stage.s; ++s) {
        for (Index byte = 0; byte < in.bytes(); ++byte) {
          if (block == 0)
            tap_offset_.push_back(static_cast<std::int32_t>(r * stage.dil.h * in.row_bytes() +
                                                            s * stage.dil.w * in.bytes() + byte));
          float weight[8][16] = {};
          for (Index bit = 0; bit < 8 && byte * 8 + bit < stage.c; ++bit)
            for (Index lane = 0; lane < 16 && block * 16 + lane < stage.k; ++lane)
              weight[bit][lane] =
                  w[(((block * 16 + lane) * stage.r + r) * stage.s + s) * stage.c + byte * 8 + bit];
          for (int group = 0; group < 8; group += group_bits_) {
            fill_rows(to, group_bits_, weight + group);
            to += (Index{1} << group_bits_) * 16;
          }
        }
      }
    }
  }
}

void SpikeConv::run(Index n, const SpikeBlock& in, const SpikeBlock& out) const {
  Params p{};
  p.table = table_.data();
  p.bias = bias_.data();
  p.tap_offset = tap_offset_.data();
  p.taps = static_cast<Index>(tap_offset_.size());
  p.k = stage_.k;
  p.filter_blocks = (stage_.k + 15) / 16;
  p.steps = stage_.t;
  p.n = n;
  p.out_h = out_h_;
  p.out_w = out_w_;
  p.increments = in_.increments;
  p.neuron = neuron_;
  const Index pool = stage_.pool ? 2 : 1;
  p.in = in.data;
  p.in_step = in.step;
  p.in_image = in_.image_bytes();
  p.in_row = stage_.stride.h * in_.row_bytes();
  p.in_column = stage_.stride.w * in_.bytes();
  p.in_window_row = pool * p.in_row;
  p.in_window_column = pool * p.in_column;
  p.out = output_in(out_, out);
  HWY_DYNAMIC_DISPATCH(run_spike_conv)(p, stage_.pool.has_value(), group_bits_);
}

}  // namespace convoy::cpu
#endif
