// Chunks of a run: every image once, none too large, in memory that does not grow with the run.
#include "network/chunks.hpp"

#include <gtest/gtest.h>

namespace convoy::network {
namespace {

TEST(Chunks, HoldEveryImageOnce) {
  for (const Index most : {1, 2, 1337, 2674})
    for (const Index n : {Index{0}, Index{1}, most - 1, most, most + 1, 2 * most + 1, Index{10000},
                          Index{1000000}}) {
      SCOPED_TRACE(testing::Message() << n << " images, at most " << most);
      const Chunks chunks = cut_into_chunks(n, most);
      Index next = 0;
      for (Index k = 0; k < chunks.count; ++k) {
        ASSERT_EQ(chunks.begin(k), next);
        ASSERT_GE(chunks.images(k), 1);
        ASSERT_LE(chunks.images(k), most);
        next += chunks.images(k);
      }
      EXPECT_EQ(next, n);
      EXPECT_EQ(chunks.count, (n + most - 1) / most);
    }
}

TEST(Chunks, OfTheTestSet) {
  constexpr Index image = 28 * 28;
  const Ring pinned = ring_of_bytes(image, Index{2} << 20),
             staged = ring_of_bytes(image, Index{1} << 20);
  EXPECT_EQ(cut_into_chunks(10000, pinned.images).count, 4);
  EXPECT_EQ(cut_into_chunks(10000, staged.images).count, 8);
  EXPECT_EQ(cut_into_chunks(10000, staged.images).size, 1250);
}

TEST(Ring, StaysSmall) {
  for (const Index image : {Index{1}, Index{784}, Index{3145}, Index{602112}, Index{1} << 40}) {
    for (const Ring& ring :
         {ring_of_bytes(image, Index{1} << 20), ring_of_bytes(image, Index{2} << 20),
          ring_of_images(image, 1), ring_of_images(image, 256)}) {
      EXPECT_GE(ring.images, 1);
      EXPECT_GE(ring.slots, 1);
      EXPECT_LE(ring.slots, most_slots);
      if (ring.slots > 1) {
        EXPECT_LE(ring.images * image * ring.slots, ring_bytes);
      }
    }
  }
  EXPECT_EQ(ring_of_images(784, 256).slots, most_slots);
  EXPECT_EQ(ring_of_images(Index{224} * 224 * 3 * 4, 256).slots, 1);  // 154 MB: one at a time
}

}  // namespace
}  // namespace convoy::network
