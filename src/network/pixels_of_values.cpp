#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "network/pixels_of_values.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: from here on this file is compiled once for each instruction set.
#include <hwy/highway.h>

#include "network/pixels_of_values.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::network::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a / b rounded once, where `inverse` is 1 / b rounded: a quotient, and its error by a fused
// multiply-add. A division takes as long as all the rest of the loop.
template <bool divide, class V>
HWY_INLINE V quotient(V a, V b, V inverse) {
  if constexpr (divide) return hn::Div(a, b);
  const V near = hn::Mul(a, inverse);
  return hn::MulAdd(hn::NegMulAdd(near, b, a), inverse, near);
}

template <bool divide>
HWY_INLINE bool invert(const InverseTable& table, const float* values, Index count,
                       std::uint8_t* pixels) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> du8;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto most = hn::Set(d, 255.0F), inverse_most = hn::Set(d, 1.0F / 255.0F);
  const Index step = lanes % table.channels;
  Index channel = 0;
  // Guesses the pixel, computes its value as values_of_pixels does, and compares the bits.
  const auto pixel_of = [&](hn::Vec<decltype(d)> x, std::uint8_t* to) HWY_ATTR {
    const auto constant = [&](Index row) HWY_ATTR {
      return hn::LoadU(d, table.rows + row * table.pitch + channel);
    };
    const auto near = hn::MulAdd(x, constant(0), constant(1));
    // Of a NaN it is some integer, whose value is none.
    const auto u = hn::NearestInt(hn::Min(hn::Max(near, hn::Zero(d)), most));
    const auto part = quotient<divide>(hn::ConvertTo(d, u), most, inverse_most);
    const auto value = quotient<divide>(hn::Sub(part, constant(2)), constant(3), constant(4));
    hn::StoreU(hn::DemoteTo(du8, u), du8, to);
    channel += step;
    if (channel >= table.channels) channel -= table.channels;
    return hn::Eq(hn::BitCast(di, value), hn::BitCast(di, x));
  };
  auto all = hn::Eq(hn::Zero(di), hn::Zero(di));
  Index i = 0;
  for (; i + lanes <= count; i += lanes)
    all = hn::And(all, pixel_of(hn::LoadU(d, values + i), pixels + i));
  if (i < count) {
    float last[longest_vector] = {};
    std::uint8_t of_last[longest_vector];
    const auto left = static_cast<std::size_t>(count - i);
    for (std::size_t j = 0; j < left; ++j) last[j] = values[i + static_cast<Index>(j)];
    const auto equal = pixel_of(hn::LoadU(d, last), of_last);
    all = hn::And(all, hn::Or(equal, hn::Not(hn::FirstN(di, left))));
    for (std::size_t j = 0; j < left; ++j) pixels[i + static_cast<Index>(j)] = of_last[j];
  }
  return hn::AllTrue(di, all);
}

bool invert_fused(const InverseTable& table, const float* values, Index count,
                  std::uint8_t* pixels) {
  return invert<false>(table, values, count, pixels);
}
bool invert_dividing(const InverseTable& table, const float* values, Index count,
                     std::uint8_t* pixels) {
  return invert<true>(table, values, count, pixels);
}

}  // namespace convoy::network::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace convoy::network {
namespace {

HWY_EXPORT(invert_fused);
HWY_EXPORT(invert_dividing);

bool fused(const InverseTable& table, const float* values, Index count, std::uint8_t* pixels) {
  return HWY_DYNAMIC_DISPATCH(invert_fused)(table, values, count, pixels);
}
bool dividing(const InverseTable& table, const float* values, Index count, std::uint8_t* pixels) {
  return HWY_DYNAMIC_DISPATCH(invert_dividing)(table, values, count, pixels);
}

}  // namespace

PixelsOfValues::PixelsOfValues(const std::vector<float>& values, const std::vector<float>& mean,
                               const std::vector<float>& std)
    : channels_(static_cast<Index>(mean.size())), pitch_(channels_ + longest_vector) {
  const auto add_row = [&](const auto& of_channel) {
    for (Index i = 0; i < pitch_; ++i)
      rows_.push_back(of_channel(static_cast<std::size_t>(i % channels_)));
  };
  add_row([&](std::size_t c) { return 255.0F * std[c]; });
  add_row([&](std::size_t c) { return 255.0F * mean[c]; });
  add_row([&](std::size_t c) { return mean[c]; });
  add_row([&](std::size_t c) { return std[c]; });
  add_row([&](std::size_t c) { return 1.0F / std[c]; });
  for (const Loop loop : {&fused, &dividing})
    if (!loop_ && !values.empty() && holds(loop, values)) loop_ = loop;
}

/// Whether all pixels come back, by their values: then a loop that recomputes them accepts nothing
/// else.
bool PixelsOfValues::holds(Loop loop, const std::vector<float>& values) const {
  const auto channels = static_cast<std::size_t>(channels_);
  std::vector<float> by_pixel(values.size());
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t u = 0; u < 256; ++u) by_pixel[u * channels + c] = values[c * 256 + u];
  std::vector<std::uint8_t> pixels(values.size());
  if (!loop(table(), by_pixel.data(), static_cast<Index>(by_pixel.size()), pixels.data()))
    return false;
  for (std::size_t i = 0; i < pixels.size(); ++i)
    if (std::memcmp(&values[i % channels * 256 + pixels[i]], &by_pixel[i], sizeof(float)) != 0)
      return false;
  return true;
}

}  // namespace convoy::network
#endif
