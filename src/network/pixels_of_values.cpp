#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "network/pixels_of_values.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: from here on this file is compiled once for each instruction set.
#include <hwy/highway.h>

#include "network/pixels_of_values.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::network::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How a quotient is rounded once: by a product where the divisor is a power of two; by a product
// and its error, from fused multiply-adds; by a division, which takes as long as all the rest.
constexpr int multiply = 0, correct = 1, divide = 2;

template <int way, class V>
HWY_INLINE V quotient(V a, V b, V inverse) {
  if constexpr (way == divide) return hn::Div(a, b);
  const V near = hn::Mul(a, inverse);
  if constexpr (way == multiply) return near;
  return hn::MulAdd(hn::NegMulAdd(near, b, a), inverse, near);
}

// Guesses the pixel of each value, computes its value as values_of_pixels does, and compares the
// bits.
template <int by_255, int by_std>
HWY_INLINE bool invert(InverseTable table, const float* values, Index count, std::uint8_t* pixels,
                       [[maybe_unused]] bool past_caches) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint8_t, decltype(d)> du8;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto most = hn::Set(d, 255.0F), inverse_most = hn::Set(d, 1.0F / 255.0F);
  const auto whole = hn::Set(d, 8388608.0F);  // 2^23: what is added to it is rounded to an integer
  const auto low = hn::Set(di, 255);
  const Index step = lanes % table.channels;
  Index channel = 0;
  const auto constant = [&](Index row) HWY_ATTR {
    return hn::LoadU(d, table.rows + row * table.pitch + channel);
  };
  auto scale = constant(0), shift = constant(1), mean = constant(2), std = constant(3),
       inverse_std = constant(4);
  auto wrong = hn::Zero(di);  // bits that differ
  const auto turn = [&](auto x, auto& differ) HWY_ATTR {
    const auto near = hn::Add(hn::MulAdd(x, scale, shift), whole);
    const auto u = hn::And(hn::BitCast(di, near), low);  // of any x it is a pixel
    const auto part = quotient<by_255>(hn::ConvertTo(d, u), most, inverse_most);
    const auto value = quotient<by_std>(hn::Sub(part, mean), std, inverse_std);
    differ = hn::Xor(hn::BitCast(di, value), hn::BitCast(di, x));
    return hn::U8FromU32(hn::BitCast(du, u));
  };
  constexpr Index ahead = 1024;  // 4 KiB: the hardware's prefetching ends with the page
  Index begin = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // A line in one store, past the caches; a copy behind this would take 10 % longer.
  constexpr Index line = 64;
  const auto off = static_cast<Index>(-reinterpret_cast<std::uintptr_t>(pixels) % line);
  if (past_caches && table.channels == 1 && off % lanes == 0 && off + line <= count) {
    const auto next = [&](Index i) HWY_ATTR {
      __builtin_prefetch(values + i + ahead);
      auto differ = wrong;
      const auto bytes = turn(hn::LoadU(d, values + i), differ);
      wrong = hn::Or(wrong, differ);
      return bytes;
    };
    for (; begin < off; begin += lanes) hn::StoreU(next(begin), du8, pixels + begin);
    const hn::Full256<std::uint8_t> half;
    const hn::Full512<std::uint8_t> all;
    for (; begin + line <= count; begin += line) {
      const auto a = next(begin), b = next(begin + lanes);
      const auto c = next(begin + 2 * lanes), e = next(begin + 3 * lanes);
      hn::Stream(hn::Combine(all, hn::Combine(half, e, c), hn::Combine(half, b, a)), all,
                 pixels + begin);
    }
  }
#endif
  for (Index i = begin; i < count; i += lanes) {
    const auto left = static_cast<std::size_t>(count - i);
    float rest[longest_vector];
    std::uint8_t of_rest[longest_vector];
    const bool full = count - i >= lanes;
    if (!full)
      for (std::size_t j = 0; j < static_cast<std::size_t>(lanes); ++j)
        rest[j] = j < left ? values[i + static_cast<Index>(j)] : 0.0F;
    __builtin_prefetch(values + i + ahead);
    auto differ = wrong;
    hn::StoreU(turn(hn::LoadU(d, full ? values + i : rest), differ), du8,
               full ? pixels + i : of_rest);
    if (!full) {
      differ = hn::IfThenElseZero(hn::FirstN(di, left), differ);
      for (std::size_t j = 0; j < left; ++j) pixels[i + static_cast<Index>(j)] = of_rest[j];
    }
    wrong = hn::Or(wrong, differ);
    if (table.channels == 1) continue;
    channel += step;
    if (channel >= table.channels) channel -= table.channels;
    scale = constant(0), shift = constant(1), mean = constant(2), std = constant(3);
    inverse_std = constant(4);
  }
  return hn::AllTrue(di, hn::Eq(wrong, hn::Zero(di)));
}

bool invert_multiplying(const InverseTable& table, const float* values, Index count,
                        std::uint8_t* pixels, bool past_caches) {
  return invert<correct, multiply>(table, values, count, pixels, past_caches);
}
bool invert_correcting(const InverseTable& table, const float* values, Index count,
                       std::uint8_t* pixels, bool past_caches) {
  return invert<correct, correct>(table, values, count, pixels, past_caches);
}
bool invert_dividing(const InverseTable& table, const float* values, Index count,
                     std::uint8_t* pixels, bool past_caches) {
  return invert<divide, divide>(table, values, count, pixels, past_caches);
}

}  // namespace convoy::network::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace convoy::network {
namespace {

HWY_EXPORT(invert_multiplying);
HWY_EXPORT(invert_correcting);
HWY_EXPORT(invert_dividing);

bool multiplying(const InverseTable& table, const float* values, Index count, std::uint8_t* pixels,
                 bool past_caches) {
  return HWY_DYNAMIC_DISPATCH(invert_multiplying)(table, values, count, pixels, past_caches);
}
bool correcting(const InverseTable& table, const float* values, Index count, std::uint8_t* pixels,
                bool past_caches) {
  return HWY_DYNAMIC_DISPATCH(invert_correcting)(table, values, count, pixels, past_caches);
}
bool dividing(const InverseTable& table, const float* values, Index count, std::uint8_t* pixels,
              bool past_caches) {
  return HWY_DYNAMIC_DISPATCH(invert_dividing)(table, values, count, pixels, past_caches);
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
  for (const Loop loop : {&multiplying, &correcting, &dividing})  // the fastest that is right
    if (!loop_ && !values.empty() && holds(loop, values)) loop_ = loop;
}

/// Whether all pixels come back, by their values: then a loop that recomputes them accepts nothing
/// else.
bool PixelsOfValues::holds(Loop loop, const std::vector<float>& values) const {
  std::vector<float> by_pixel;
  for (Index u = 0; u < 256; ++u)
    for (Index c = 0; c < channels_; ++c)
      by_pixel.push_back(values[static_cast<std::size_t>(c * 256 + u)]);
  std::vector<std::uint8_t> pixels(by_pixel.size());
  if (!loop(table(), by_pixel.data(), static_cast<Index>(by_pixel.size()), pixels.data(), false))
    return false;
  std::size_t i = 0;
  for (Index u = 0; u < 256; ++u)
    for (Index c = 0; c < channels_; ++c, ++i) {
      const float value = values[static_cast<std::size_t>(c * 256 + pixels[i])];
      if (std::memcmp(&value, &by_pixel[i], sizeof(float)) != 0) return false;
    }
  return true;
}

}  // namespace convoy::network
#endif
