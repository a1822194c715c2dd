#include "network/convert.hpp"

#include <algorithm>

#include "math/half.hpp"

namespace convoy::network {
namespace {

// The mean or std of each channel: the text has none, one for all, or one each.
std::vector<float> of_channels(const std::vector<float>& values, Index channels, float none) {
  std::vector<float> all(static_cast<std::size_t>(channels), none);
  for (std::size_t c = 0; c < all.size() && !values.empty(); ++c)
    all[c] = values[values.size() == 1 ? 0 : c];
  return all;
}

}  // namespace

std::vector<float> values_of_pixels(const NetworkText& text) {
  const auto mean = of_channels(text.mean, text.c, 0), std = of_channels(text.std, text.c, 1);
  std::vector<float> values;
  for (std::size_t c = 0; c < mean.size(); ++c)
    for (int u = 0; u < 256; ++u)
      values.push_back((static_cast<float>(u) / 255.0F - mean[c]) / std[c]);
  return values;
}

Conversion::Conversion(const NetworkText& text)
    : channels_(text.c),
      pixels_(text.dtype == DType::u8),
      normalises_(!(text.mean.empty() && text.std.empty())),
      values_(pixels_ ? values_of_pixels(text) : std::vector<float>()),
      mean_(of_channels(text.mean, text.c, 0)),
      std_(of_channels(text.std, text.c, 1)) {}

void Conversion::run(Threads& threads, Index count, const void* from, float* to) const {
  const Index pixels = count / channels_, part = std::max<Index>(4096 / channels_, 1);
  threads.for_each((pixels + part - 1) / part, [&](Index task, int) {
    const Index first = task * part, end = std::min(pixels, first + part);
    float* out = to + first * channels_;
    if (pixels_) {
      const auto* u = static_cast<const std::uint8_t*>(from) + first * channels_;
      for (Index pixel = first; pixel < end; ++pixel)
        for (Index c = 0; c < channels_; ++c)
          *out++ = values_[static_cast<std::size_t>(c * 256 + *u++)];
    } else {
      const auto* x = static_cast<const float*>(from) + first * channels_;
      for (Index pixel = first; pixel < end; ++pixel)
        for (std::size_t c = 0; c < mean_.size(); ++c) *out++ = (*x++ - mean_[c]) / std_[c];
    }
  });
}

void mean_and_labels(DType type, const void* outputs, Index steps, Index n, Index classes,
                     float* mean, std::int32_t* labels) {
  const Index step = n * classes;
  for (Index i = 0; i < n; ++i) {
    float largest = 0;
    for (Index k = 0; k < classes; ++k) {
      const Index at = i * classes + k;
      float sum = math::load(type, outputs, at);
      for (Index t = 1; t < steps; ++t) sum += math::load(type, outputs, t * step + at);
      const float value = steps > 1 ? sum / static_cast<float>(steps) : sum;
      if (mean) mean[at] = value;
      if (labels && (k == 0 || value > largest)) {
        largest = value;
        labels[i] = static_cast<std::int32_t>(k);
      }
    }
  }
}

}  // namespace convoy::network
