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

std::vector<float> values_of_pixels(const graph::Normalise& by, Index channels) {
  const auto mean = of_channels(by.mean, channels, 0), std = of_channels(by.std, channels, 1);
  std::vector<float> values;
  for (std::size_t c = 0; c < mean.size(); ++c)
    for (int u = 0; u < 256; ++u)
      values.push_back((static_cast<float>(u) / 255.0F - mean[c]) / std[c]);
  return values;
}

Conversion::Conversion(const graph::Normalise& by, DType type, Index channels)
    : channels_(channels),
      pixels_(type == DType::u8),
      values_(pixels_ ? values_of_pixels(by, channels) : std::vector<float>()),
      mean_(of_channels(by.mean, channels, 0)),
      std_(of_channels(by.std, channels, 1)) {}

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

namespace {

void mean_and_label_of(DType type, const void* outputs, Index steps, Index step, Index i,
                       Index classes, float* mean, std::int32_t* label) {
  float largest = 0;
  for (Index k = 0; k < classes; ++k) {
    const Index at = i * classes + k;
    float sum = math::load(type, outputs, at);
    for (Index t = 1; t < steps; ++t) sum += math::load(type, outputs, t * step + at);
    const float value = steps > 1 ? sum / static_cast<float>(steps) : sum;
    if (mean) mean[at] = value;
    if (label && (k == 0 || value > largest)) {
      largest = value;
      *label = static_cast<std::int32_t>(k);
    }
  }
}

}  // namespace

void mean_and_labels(Threads& threads, DType type, const void* outputs, Index steps, Index n,
                     Index classes, float* mean, std::int32_t* labels) {
  // A task has work for some microseconds.
  const Index images = std::max<Index>(16384 / (classes * steps), 1);
  threads.for_each((n + images - 1) / images, [&](Index task, int) {
    const Index end = std::min(n, (task + 1) * images);
    for (Index i = task * images; i < end; ++i)
      mean_and_label_of(type, outputs, steps, n * classes, i, classes, mean,
                        labels ? labels + i : nullptr);
  });
}

}  // namespace convoy::network
