// How many runs a graph gets that is replayed to time a stage.
#include "plan/timing.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace convoy {
namespace {

TEST(Timing, ShortStagesGetTheWholeGraph) {
  for (const double seconds : {0.001, 0.03, 0.4, 10.0})
    for (const double once : {0.0, 3e-6, 2e-4, 9e-4}) {
      EXPECT_EQ(choose_replays(once, 8, seconds).runs, 24U) << once;
      EXPECT_EQ(choose_replays(once, 8, seconds).least, 3) << once;
    }
  EXPECT_EQ(choose_replays(3e-6, 64, 0.03).runs, 64U);
  EXPECT_EQ(choose_replays(3e-6, 1, 0.03).runs, 24U);
}

TEST(Timing, LongStagesKeepToTheirTime) {
  for (const double seconds : {0.001, 0.03, 0.4, 10.0})
    for (double once = 1e-3; once < 3; once *= 1.3) {
      const Replays replays = choose_replays(once, 8, seconds);
      EXPECT_GE(replays.runs, 1U);
      EXPECT_LE(replays.runs, 24U);
      const double graph = once * static_cast<double>(replays.runs);
      // The graph hides its start, unless a single run does.
      EXPECT_TRUE(graph >= 0.024 || replays.runs == 24U) << once;
      // One run before, one replay that is not counted, and those that are.
      const double least = replays.least == 1 ? once + graph : once + 4 * graph;
      EXPECT_LE(least, 0.5 + 2 * seconds + 2 * once) << once << " s for " << seconds << " s";
    }
}

TEST(Timing, ARunLongerThanTheTimeIsReplayedOnce) {
  const Replays replays = choose_replays(0.6, 8, 0.4);
  EXPECT_EQ(replays.runs, 1U);
  EXPECT_EQ(replays.least, 1);
}

// Values are drawn for a million elements and repeated; the rest must be written too.
TEST(Timing, LargeOperandsAreFilledToTheEnd) {
  const Stage stage = parse_stage("n1h1024w1025c2k2r1");
  const RandomOperands random(stage);
  const auto* x = random.x.data<float>();
  const Index count = random.x.elements(), drawn = 1'048'583;
  ASSERT_GT(count, 2 * drawn - 4096);
  EXPECT_EQ(std::memcmp(x, x + drawn, sizeof(float) * static_cast<std::size_t>(count - drawn)), 0);
  EXPECT_NE(x[drawn + 1], 0.0F);
}

}  // namespace
}  // namespace convoy
