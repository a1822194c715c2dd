// Conversions to and from f16 and bf16: each value of the small types, and the points between.
#include "math/half.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace convoy::math {
namespace {

// What the bits mean, from the definition.
double half_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? std::nan("") : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

TEST(Half, EveryValueBothWays) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = half_to_float(bits);
    if (std::isnan(half_value(bits))) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      EXPECT_EQ(value, half_value(bits));
      EXPECT_EQ(float_to_half(value), bits);
    }
  }
}

// Between two neighbours: the middle goes to the even one, a step to either side to the nearer.
TEST(Half, RoundsToNearestEven) {
  for (std::uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = half_to_float(bits);
    const float high =
        bits == 0x7bff ? 65536.0F : half_to_float(static_cast<std::uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    const auto up = static_cast<std::uint16_t>(bits + 1);
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint16_t s = sign < 0 ? 0x8000 : 0;
      EXPECT_EQ(float_to_half(sign * middle), (bits % 2 ? up : bits) | s);
      EXPECT_EQ(float_to_half(sign * std::nextafterf(middle, low)), bits | s);
      EXPECT_EQ(float_to_half(sign * std::nextafterf(middle, high)), up | s);
    }
  }
  EXPECT_EQ(float_to_half(1e30F), 0x7c00);
  EXPECT_EQ(float_to_half(-INFINITY), 0xfc00);
  EXPECT_EQ(float_to_half(1e-30F), 0);
}

TEST(Bfloat, EveryValueAndRounding) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = bfloat_to_float(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(value))));
      continue;
    }
    EXPECT_EQ(float_to_bfloat(value), bits);
    if ((bits & 0x7fff) >= 0x7f80) continue;
    const auto up = static_cast<std::uint16_t>(bits + 1);  // away from zero; infinity at the end
    const float middle = float_of((static_cast<std::uint32_t>(bits) << 16) | 0x8000U);
    EXPECT_EQ(float_to_bfloat(middle), bits % 2 ? up : bits);
    EXPECT_EQ(float_to_bfloat(float_of(bits_of(middle) - 1)), bits);
    EXPECT_EQ(float_to_bfloat(float_of(bits_of(middle) + 1)), up);
  }
}

}  // namespace
}  // namespace convoy::math
