// Spikes to bits and back, compiled once for each instruction set. Vectors hold channels.
#include "cpu/spike/spike_bits.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/spike/spike_bits_simd.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: this file is compiled once for each instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using UpToEight = hn::CappedTag<float, 8>;
constexpr int kPart = HWY_LANES(float) < 8 ? HWY_LANES(float) : 8;  // channels of a vector

/// A row of pixels, dense, to bytes.
void pack_row(const float* from, Index pixels, Index channels, std::uint8_t* to) {
  const UpToEight d;
  for (Index pixel = 0; pixel < pixels; ++pixel, from += channels) {
    Index c = 0;
    for (; c + 8 <= channels; c += 8) {
      unsigned byte = 0;
#pragma GCC unroll 8
      for (int i = 0; i < 8; i += kPart) {
        std::uint8_t part[8] = {};
        hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, from + c + i), hn::Zero(d)), part);
        byte |= static_cast<unsigned>(part[0]) << i;
      }
      *to++ = static_cast<std::uint8_t>(byte);
    }
    if (c == channels) continue;
    unsigned byte = 0;
    for (Index bit = 0; c + bit < channels; ++bit) byte |= (from[c + bit] != 0.0F ? 1U : 0U) << bit;
    *to++ = static_cast<std::uint8_t>(byte);
  }
}

/// And back; spikes are also those of the bytes that lie `before` bytes before.
void unpack_row(const std::uint8_t* from, Index before, Index pixels, Index channels, float* to) {
  const UpToEight d;
  const auto one = hn::Set(d, 1.0F);
  for (Index pixel = 0; pixel < pixels; ++pixel, to += channels) {
    Index c = 0;
    for (; c + 8 <= channels; c += 8, ++from) {
      const unsigned byte = *from | *(from - before);
#pragma GCC unroll 8
      for (int i = 0; i < 8; i += kPart) {
        const std::uint8_t part[8] = {static_cast<std::uint8_t>(byte >> i)};
        hn::StoreU(hn::IfThenElseZero(hn::LoadMaskBits(d, part), one), d, to + c + i);
      }
    }
    if (c == channels) continue;
    const unsigned byte = *from | *(from - before);
    ++from;
    for (Index bit = 0; c + bit < channels; ++bit) to[c + bit] = byte >> bit & 1 ? 1.0F : 0.0F;
  }
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu {

HWY_EXPORT(pack_row);
HWY_EXPORT(unpack_row);

void pack_spikes(const SpikeLayout& layout, Index steps, Index n, const float* spikes,
                 Index spikes_step, const SpikeBlock& to) {
  for (Index t = 0; t < steps; ++t) {
    const float* from = spikes + t * spikes_step;
    for (Index image = 0; image < n; ++image) {
      std::uint8_t* row = to.data + t * to.step + image * layout.image_bytes() + layout.origin();
      for (Index y = 0; y < layout.h; ++y, row += layout.row_bytes(), from += layout.w * layout.c)
        HWY_DYNAMIC_DISPATCH(pack_row)(from, layout.w, layout.c, row);
    }
  }
}

void unpack_spikes(const SpikeLayout& layout, Index steps, Index n, const SpikeBlock& from,
                   float* spikes, Index spikes_step) {
  for (Index t = 0; t < steps; ++t) {
    float* to = spikes + t * spikes_step;
    const Index before = layout.increments && t > 0 ? from.step : 0;
    for (Index image = 0; image < n; ++image) {
      const std::uint8_t* row =
          from.data + t * from.step + image * layout.image_bytes() + layout.origin();
      for (Index y = 0; y < layout.h; ++y, row += layout.row_bytes(), to += layout.w * layout.c)
        HWY_DYNAMIC_DISPATCH(unpack_row)(row, before, layout.w, layout.c, to);
    }
  }
}

}  // namespace convoy::cpu
#endif
