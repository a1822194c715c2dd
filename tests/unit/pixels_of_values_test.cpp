// The inverse of the normalisation of pixels: all of their values come back, nothing else does.
#include "network/pixels_of_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "network/convert.hpp"
#include "network/copy_past_caches.hpp"

namespace convoy {
namespace {

struct Norm {
  std::vector<float> mean, std;
  Index channels;
};
const std::vector<Norm> norms = {
    {{0.5F}, {0.5F}, 1},
    {{}, {}, 1},
    {{0.1307F}, {0.3081F}, 1},
    {{0.2860F}, {0.3530F}, 1},
    {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}, 3},
    {{0.1F, 0.2F, 0.3F, 0.4F, 0.7F}, {0.9F, 3.0F, 0.01F, 1e-3F, 0.3F}, 5},
};

class Inverse : public testing::TestWithParam<Norm> {
 protected:
  const network::Conversion conversion_{
      {GetParam().mean, GetParam().std}, DType::u8, GetParam().channels};
  const network::PixelsOfValues inverse_{conversion_.values(), conversion_.mean(),
                                         conversion_.std()};
  const std::size_t channels_ = static_cast<std::size_t>(GetParam().channels);

  float value(std::size_t i, std::uint8_t pixel) const {
    return conversion_.values()[i % channels_ * 256 + pixel];
  }
};

TEST_P(Inverse, AllPixelsComeBackFromAnyPlace) {
  ASSERT_TRUE(inverse_.possible());
  std::mt19937 random(5);
  for (const std::size_t images : {1, 2, 5, 7, 16, 33, 256, 1000}) {
    const std::size_t count = images * channels_;
    std::vector<std::uint8_t> pixels(count), back(count + 1, 77);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      pixels[i] = static_cast<std::uint8_t>(images == 256 ? i / channels_ : random() % 256);
      values[i] = value(i, pixels[i]);
    }
    ASSERT_TRUE(inverse_.run(values.data(), static_cast<Index>(count), back.data()));
    EXPECT_EQ(back.back(), 77);  // nothing behind the end
    back.pop_back();
    EXPECT_EQ(back, pixels);
  }
}

TEST_P(Inverse, NothingElseDoes) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float others[] = {-0.0F,
                          std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::quiet_NaN(),
                          infinity,
                          -infinity,
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::lowest(),
                          std::numeric_limits<float>::denorm_min(),
                          1e30F,
                          -1e9F};
  const std::size_t count = 37 * channels_;
  std::vector<std::uint8_t> back(count);
  for (std::size_t place = 0; place < count; ++place) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value(i, static_cast<std::uint8_t>(i));
    const auto refused = [&](float other) {
      values[place] = other;
      EXPECT_FALSE(inverse_.run(values.data(), static_cast<Index>(count), back.data()))
          << other << " at " << place;
    };
    for (const float other : others) refused(other);
    for (int u = 0; u < 256; u += 51) {  // beside each value, and between two
      const float here = value(place, static_cast<std::uint8_t>(u));
      for (const float other : {std::nextafter(here, infinity), std::nextafter(here, -infinity)})
        refused(other);
      if (u < 255) refused((here + value(place, static_cast<std::uint8_t>(u + 1))) / 2);
    }
  }
}

// Whole lines in the middle, and what is left before and behind them.
TEST_P(Inverse, PastTheCachesToAnyPlace) {
  for (const Index before : {0, 1, 16, 31, 48, 63})
    for (const Index images : {1, 17, 48, 64, 79, 200}) {
      SCOPED_TRACE(std::to_string(images) + " images, " + std::to_string(before) +
                   " bytes behind a line");
      const auto count = images * GetParam().channels;
      alignas(64) std::array<std::uint8_t, 1200> back;
      back.fill(77);
      std::vector<std::uint8_t> expected(back.begin(), back.end());
      std::vector<float> values(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto pixel = static_cast<std::uint8_t>(i * 7 + 3);
        values[i] = value(i, pixel);
        expected[static_cast<std::size_t>(before) + i] = pixel;
      }
      const auto run = [&] {
        const bool all = inverse_.run(values.data(), count, back.data() + before, true);
        network::end_copies_past_caches();
        return all;
      };
      ASSERT_TRUE(run());
      EXPECT_TRUE(std::equal(back.begin(), back.end(), expected.begin()));
      for (std::size_t place = 0; place < values.size(); ++place) {
        const float right = std::exchange(values[place], std::numeric_limits<float>::quiet_NaN());
        EXPECT_FALSE(run()) << "NaN at " << place;
        values[place] = right;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Norms, Inverse, testing::ValuesIn(norms),
                         [](const auto& test) { return "norm" + std::to_string(test.index); });

// A standard deviation so large that pixels share a value: either serves, as it is the value that
// the layer reads.
TEST(InverseOfPixels, SharedValues) {
  const network::Conversion conversion({{1e9F}, {1.0F}}, DType::u8, 1);
  const network::PixelsOfValues inverse(conversion.values(), conversion.mean(), conversion.std());
  std::uint8_t pixel = 0;
  if (!inverse.possible()) return;
  ASSERT_TRUE(inverse.run(&conversion.values()[9], 1, &pixel));
  EXPECT_EQ(conversion.values()[pixel], conversion.values()[9]);
}

TEST(CopyPastCaches, FromAnyPlaceToAnyPlace) {
  std::vector<std::uint8_t> from(400);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 11 + 5);
  for (const std::size_t source : {0, 1, 13})
    for (const std::size_t before : {0, 1, 16, 63})
      for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 200, 300}) {
        alignas(64) std::array<std::uint8_t, 400> to;
        to.fill(77);
        std::vector<std::uint8_t> expected(to.begin(), to.end());
        std::copy_n(&from[source], bytes, &expected[before]);
        network::copy_past_caches(&from[source], bytes, to.data() + before);
        network::end_copies_past_caches();
        EXPECT_TRUE(std::equal(to.begin(), to.end(), expected.begin()))
            << bytes << " bytes from " << source << " to " << before;
      }
}

}  // namespace
}  // namespace convoy
