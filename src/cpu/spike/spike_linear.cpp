#include "cpu/spike/spike_linear.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/spike/spike_linear.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: this file is compiled once for each instruction set.
#include <hwy/highway.h>

#include "cpu/spike/spike_neuron-inl.hpp"

#ifndef CONVOY_CPU_SPIKE_LINEAR_ONCE
#define CONVOY_CPU_SPIKE_LINEAR_ONCE
namespace convoy::cpu {

struct SpikeLinear::Params {
  const float* table;
  const float* bias;
  Index steps, k, k_padded;
  Index in_bytes, in_step;
  const std::uint8_t* in;
  bool increments;
  Neuron neuron;
  float* sums;      // [k_padded]
  float* membrane;  // [k_padded]
};

/// Bytes of input whose table rows a 16-bit number can count, with room to spare.
inline constexpr Index spike_chunk = 32;

}  // namespace convoy::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {

using Params = SpikeLinear::Params;

/// Lists the table rows, within a chunk, of the four-bit groups that are not 0. Returns how many.
HWY_INLINE Index find_spikes(const std::uint8_t* in, std::uint16_t* found) {
  Index count = 0;
#if HWY_TARGET == HWY_AVX3
  const hn::CappedTag<std::uint16_t, 32> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto bytes = hn::PromoteTo(d, hn::LoadU(d8, in));
  for (Index half = 0; half < 2; ++half) {
    const auto value =
        half == 0 ? hn::And(bytes, hn::Set(d, std::uint16_t{15})) : hn::ShiftRight<4>(bytes);
    const auto first = static_cast<std::uint16_t>(half * spike_chunk * 16);
    const auto row = hn::Add(value, hn::ShiftLeft<4>(hn::Iota(d, std::uint16_t{0})));
    const auto any = hn::Ne(value, hn::Zero(d));
    hn::StoreU(hn::Compress(hn::Add(row, hn::Set(d, first)), any), d, found + count);
    // Not CountTrue: g++ 12 may store the mask's 32 bits to the stack and count 64 from there.
    std::uint8_t bits[sizeof(unsigned)];
    hn::StoreMaskBits(d, any, bits);
    unsigned mask = 0;
    __builtin_memcpy(&mask, bits, sizeof mask);
    count += __builtin_popcount(mask);
  }
#else
  // Without a compress instruction a plain loop is faster; it has no branch that data decides.
  for (Index half = 0; half < 2; ++half)
    for (Index byte = 0; byte < spike_chunk; ++byte) {
      const unsigned value = half == 0 ? in[byte] & 15U : in[byte] >> 4;
      found[count] = static_cast<std::uint16_t>((half * spike_chunk + byte) * 16 + value);
      count += value != 0;
    }
#endif
  return count;
}

/// sums[0, kVecs vectors) of the listed rows, starting from `sums`.
template <int kVecs>
HWY_INLINE void add_rows(const float* table, Index k_padded, const std::uint16_t* found,
                         Index count, float* sums) {
  const Float d;
  Vec sum[kVecs];
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) sum[v] = hn::Load(d, sums + v * kLanes);
  for (Index i = 0; i < count; ++i) {
    const float* row = table + found[i] * k_padded;
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) sum[v] = hn::Add(sum[v], hn::Load(d, row + v * kLanes));
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) hn::Store(sum[v], d, sums + v * kLanes);
}

/// p.sums += table rows of one step of one image.
void add_step(const Params& p, const std::uint8_t* in) {
  alignas(64) std::uint16_t found[2 * spike_chunk + 32];
  for (Index byte = 0; byte < p.in_bytes; byte += spike_chunk) {
    const float* table = p.table + byte * 32 * p.k_padded;
    Index count = 0;
    if (byte + spike_chunk <= p.in_bytes) {
      count = find_spikes(in + byte, found);
    } else {
      std::uint8_t tail[spike_chunk] = {};
      for (Index b = byte; b < p.in_bytes; ++b) tail[b - byte] = in[b];
      count = find_spikes(tail, found);
    }
    Index first = 0;
    const Index vectors = p.k_padded / kLanes;
    for (; first + 8 <= vectors; first += 8)
      add_rows<8>(table + first * kLanes, p.k_padded, found, count, p.sums + first * kLanes);
    if (first + 6 <= vectors) {
      add_rows<6>(table + first * kLanes, p.k_padded, found, count, p.sums + first * kLanes);
      first += 6;
    }
    for (; first + 4 <= vectors; first += 4)
      add_rows<4>(table + first * kLanes, p.k_padded, found, count, p.sums + first * kLanes);
    for (; first < vectors; ++first)
      add_rows<1>(table + first * kLanes, p.k_padded, found, count, p.sums + first * kLanes);
  }
}

void clear(float* values, Index count) {
  const Float d;
  for (Index i = 0; i < count; i += kLanes) hn::Store(hn::Zero(d), d, values + i);
}

void run_spike_linear(const Params& params, Index n, Index in_image, std::uint8_t* out,
                      Index out_step) {
  const Float d;
  const Params p = params;  // a copy, which the bytes written can't alias
  const Index out_bytes = (p.k + 7) / 8;
  for (Index image = 0; image < n; ++image) {
    clear(p.membrane, p.k_padded);
    for (Index t = 0; t < p.steps; ++t) {
      if (t == 0 || !p.increments) clear(p.sums, p.k_padded);
      add_step(p, p.in + t * p.in_step + image * in_image);
      std::uint8_t* const to = out + t * out_step + image * out_bytes;
      for (Index k = 0; k < p.k_padded; k += 16) {
        unsigned bits = 0;
#pragma GCC unroll 4
        for (int lane = 0; lane < 16; lane += kLanes) {
          Vec v = hn::Load(d, p.membrane + k + lane);
          const Vec x = hn::Add(hn::Load(d, p.sums + k + lane), hn::Load(d, p.bias + k + lane));
          bits |= bits_of(step(p.neuron, x, v)) << lane;
          hn::Store(v, d, p.membrane + k + lane);
        }
        to[k / 8] = static_cast<std::uint8_t>(bits);
        if (k / 8 + 1 < out_bytes) to[k / 8 + 1] = static_cast<std::uint8_t>(bits >> 8);
      }
    }
  }
}

void run_spike_mean(const Params& p, Index n, Index in_image, float* mean) {
  for (Index image = 0; image < n; ++image, mean += p.k) {
    for (Index t = 0; t < p.steps; ++t) {
      if (t == 0 || !p.increments) clear(p.sums, p.k_padded);
      add_step(p, p.in + t * p.in_step + image * in_image);
      for (Index k = 0; k < p.k; ++k) {
        const float y = p.sums[k] + p.bias[k];
        mean[k] = t == 0 ? y : mean[k] + y;
      }
    }
    if (p.steps > 1)
      for (Index k = 0; k < p.k; ++k) mean[k] /= static_cast<float>(p.steps);
  }
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/shared/refusals.hpp"

namespace convoy::cpu {

HWY_EXPORT(run_spike_linear);
HWY_EXPORT(run_spike_mean);

void SpikeLinear::refuse(const Stage& stage, Reasons& why) {
  Refusals(stage, why)
      .expect(stage.h == 1 && stage.w == 1, "the image", fmt::format("{}x{}", stage.h, stage.w),
              "1x1")
      .filter(1, 1)
      .expect(stage.pad == Padding(0), "padding", "asked for", "none")
      .expect(!stage.hold, "hold", "asked for", "none: the spikes differ from step to step")
      .expect(!stage.pool, "a pool", "asked for", "none");
}

SpikeLinear::SpikeLinear(const Stage& stage, Index steps, const float* w, const float* bias,
                         const SpikeLayout& in)
    : steps_(steps),
      k_(stage.k),
      k_padded_((stage.k + 15) / 16 * 16),
      in_bytes_(in.image_bytes()),
      increments_(in.increments),
      neuron_(neuron_of(stage)) {
  const Index chunks = (in_bytes_ + spike_chunk - 1) / spike_chunk;
  table_ = Buffer<float>(static_cast<std::size_t>(chunks * spike_chunk * 2 * 16 * k_padded_));
  bias_ = padded_bias(bias, k_);
  float* row = table_.data();
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    for (Index half = 0; half < 2; ++half) {
      for (Index byte = chunk * spike_chunk; byte < (chunk + 1) * spike_chunk; ++byte) {
        const Index column = byte * 8 + half * 4;
        for (int value = 0; value < 16; ++value, row += k_padded_) {
          for (Index k = 0; k < k_padded_; ++k) {
            float sum = 0;
            for (int bit = 0; bit < 4; ++bit)
              if ((value >> bit & 1) && byte < in_bytes_ && k < k_)
                sum += w[k * in_bytes_ * 8 + column + bit];
            row[k] = sum;
          }
        }
      }
    }
  }
}

Index SpikeLinear::scratch_floats(const Stage& stage) {
  return 2 * ((stage.k + 15) / 16 * 16);
}

SpikeLinear::Params SpikeLinear::params(const SpikeBlock& in, float* scratch) const {
  Params p{};
  p.table = table_.data();
  p.bias = bias_.data();
  p.steps = steps_;
  p.k = k_;
  p.k_padded = k_padded_;
  p.in_bytes = in_bytes_;
  p.in_step = in.step;
  p.in = in.data;
  p.increments = increments_;
  p.neuron = neuron_;
  p.sums = scratch;
  p.membrane = scratch + k_padded_;
  return p;
}

void SpikeLinear::run(Index n, const SpikeBlock& in, const SpikeBlock& out, float* scratch) const {
  HWY_DYNAMIC_DISPATCH(run_spike_linear)
  (params(in, scratch), n, in_bytes_, out.data, out.step);
}

void SpikeLinear::run_mean(Index n, const SpikeBlock& in, float* mean, float* scratch) const {
  HWY_DYNAMIC_DISPATCH(run_spike_mean)(params(in, scratch), n, in_bytes_, mean);
}

}  // namespace convoy::cpu
#endif
