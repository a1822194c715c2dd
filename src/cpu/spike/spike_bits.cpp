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

}  // namespace convoy::cpu
