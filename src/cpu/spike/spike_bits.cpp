#include "cpu/spike/spike_bits.hpp"

#include <limits>

namespace convoy::cpu {

Buffer<float> padded_bias(const float* bias, Index k) {
  Buffer<float> padded(static_cast<std::size_t>((k + 15) / 16 * 16));
  for (std::size_t i = 0; i < padded.size(); ++i) {
    const bool real = i < static_cast<std::size_t>(k);
    padded[i] = !real ? -std::numeric_limits<float>::infinity() : bias ? bias[i] : 0.0F;
  }
  return padded;
}

void pack_spikes(const SpikeLayout& layout, Index steps, Index n, const float* spikes,
                 Index spikes_step, const SpikeBlock& to) {
  for (Index t = 0; t < steps; ++t) {
    const float* from = spikes + t * spikes_step;
    for (Index image = 0; image < n; ++image) {
      std::uint8_t* row = to.data + t * to.step + image * layout.image_bytes() + layout.origin();
      for (Index y = 0; y < layout.h; ++y, row += layout.row_bytes()) {
        std::uint8_t* at = row;
        for (Index x = 0; x < layout.w; ++x) {
          for (Index c = 0; c < layout.c; c += 8) {
            unsigned byte = 0;
            for (Index bit = 0; bit < 8 && c + bit < layout.c; ++bit)
              byte |= (from[c + bit] != 0.0F ? 1U : 0U) << bit;
            *at++ = static_cast<std::uint8_t>(byte);
          }
          from += layout.c;
        }
      }
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
      for (Index y = 0; y < layout.h; ++y, row += layout.row_bytes())
        for (Index x = 0; x < layout.w; ++x)
          for (Index c = 0; c < layout.c; ++c) {
            const std::uint8_t* const at = row + x * layout.bytes() + c / 8;
            *to++ = (*at | *(at - before)) >> (c % 8) & 1 ? 1.0F : 0.0F;
          }
    }
  }
}

}  // namespace convoy::cpu
