// Copies past the caches: all bytes, and no others, however both sides lie.
#include "network/copy_past_caches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "convoy/network.hpp"
#include "network/convert.hpp"
#include "network/pixels_of_values.hpp"

namespace convoy::network {
namespace {

TEST(CopyPastCaches, WritesAllBytesAndNoOthers) {
  std::vector<std::uint8_t> from(1000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 % 251);
  for (const std::size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 200, 784})
    for (const std::size_t shift : {0, 1, 16, 33, 63})
      for (const std::size_t of_from : {0, 5, 16}) {
        SCOPED_TRACE(testing::Message() << bytes << " bytes, " << shift << ", " << of_from);
        std::vector<std::uint8_t> to(1000, 255);
        copy_past_caches(from.data() + of_from, bytes, to.data() + shift);
        end_copies_past_caches();
        const auto begin = to.begin() + static_cast<std::ptrdiff_t>(shift);
        const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
        EXPECT_TRUE(std::equal(begin, end, from.begin() + static_cast<std::ptrdiff_t>(of_from)));
        EXPECT_EQ(std::count(to.begin(), begin, 255), begin - to.begin());
        EXPECT_EQ(std::count(end, to.end(), 255), to.end() - end);
      }
}

// Pixels of values take the same way.
TEST(CopyPastCaches, TakesPixelsOfValues) {
  NetworkText text;
  text.c = 1;
  text.mean = text.std = {0.5F};
  const std::vector<float> table = values_of_pixels({text.mean, text.std}, text.c);
  const PixelsOfValues pixels_of_values(table, text.mean, text.std);
  std::vector<std::uint8_t> pixels(1000);
  std::vector<float> values(pixels.size());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(i * 7 % 251);
    values[i] = table[pixels[i]];
  }
  for (const Index count : {0, 1, 64, 100, 128, 200, 784})
    for (const std::size_t shift : {0, 1, 16, 32, 48}) {
      SCOPED_TRACE(testing::Message() << count << " values, " << shift);
      std::vector<std::uint8_t> to(1000, 255);
      ASSERT_TRUE(pixels_of_values.run(values.data(), count, to.data() + shift, true));
      end_copies_past_caches();
      const auto end = to.begin() + static_cast<Index>(shift) + count;
      EXPECT_TRUE(std::equal(to.begin() + static_cast<Index>(shift), end, pixels.begin()));
      EXPECT_EQ(std::count(end, to.end(), 255), to.end() - end);
      for (Index odd = 0; odd < count; odd += 37) {
        std::vector<float> other = values;
        other[static_cast<std::size_t>(odd)] = 0.3F;
        EXPECT_FALSE(pixels_of_values.run(other.data(), count, to.data() + shift, true)) << odd;
      }
    }
}

}  // namespace
}  // namespace convoy::network
