// Which workspace a run on a GPU gets; memory of the host stands for a GPU's.
#include "plan/stream_workspaces.hpp"

#include <gtest/gtest.h>

#include <set>

namespace convoy {
namespace {

struct Counted {
  int made = 0, waits = 0;
  bool can_wait = true;
  StreamWorkspaces all;
  explicit Counted(std::size_t at_first)
      : all(
            at_first,
            [this] {
              ++made;
              return Tensor(DType::u8, {64});
            },
            [this] {
              ++waits;
              return can_wait;
            }) {}
  const std::byte* of(std::uint64_t stream, std::uint64_t capture = 0) {
    return all.run({stream, capture}, [](std::byte* workspace) { return workspace; });
  }
};

TEST(StreamWorkspaces, AStreamKeepsItsOwnAndAFurtherOneGetsAnother) {
  Counted some(1);
  EXPECT_EQ(some.made, 1);
  const std::byte* const a = some.of(7);
  EXPECT_EQ(some.made, 1);  // the one that was there
  const std::byte* const b = some.of(8);
  EXPECT_NE(a, b);
  EXPECT_EQ(some.of(7), a);
  EXPECT_EQ(some.of(8), b);
  EXPECT_EQ(some.made, 2);
}

TEST(StreamWorkspaces, EachStreamOfACaptureHasOneThatNobodyElseGets) {
  Counted some(1);
  const std::byte* const run = some.of(7);
  const std::byte* const captured = some.of(7, 3);
  EXPECT_NE(run, captured);
  EXPECT_NE(some.of(8, 3), captured);
  EXPECT_NE(some.of(7, 4), captured);
  EXPECT_EQ(some.of(7, 3), captured);
  std::set<const std::byte*> later;
  for (std::uint64_t stream = 100; stream < 400; ++stream) later.insert(some.of(stream));
  EXPECT_EQ(later.count(captured), 0U);
  EXPECT_EQ(some.of(7, 3), captured);
}

TEST(StreamWorkspaces, BeginAgainAfterAWaitWhenAStreamIsMadeForEachRun) {
  Counted some(2);
  for (std::uint64_t stream = 1; stream <= 1000; ++stream) some.of(stream);
  EXPECT_EQ(some.made, 64);
  EXPECT_EQ(some.waits, 15);
}

TEST(StreamWorkspaces, GrowWhereNothingCanBeWaitedFor) {
  Counted some(1);
  some.can_wait = false;
  std::set<const std::byte*> all;
  for (std::uint64_t stream = 1; stream <= 100; ++stream) all.insert(some.of(stream));
  EXPECT_EQ(all.size(), 100U);
}

}  // namespace
}  // namespace convoy
