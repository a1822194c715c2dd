// Where tensors between the steps of a network lie.
#include "network/memory_plan.hpp"

#include <gtest/gtest.h>

#include <random>

namespace convoy::network {
namespace {

TEST(MemoryPlan, NeighboursOfAChainTakeTurns) {
  // 1000 bytes go to 256-byte places: 1024, 512 and 256.
  const MemoryPlan plan = plan_memory({{1000, -1, 0}, {512, 0, 1}, {1000, 1, 2}, {100, 2, 3}});
  EXPECT_EQ(plan.bytes.value(), 1024 + 512);
  EXPECT_EQ(plan.offset[0], plan.offset[2]);
  EXPECT_EQ(plan.offset[3] % 256, 0);
}

TEST(MemoryPlan, NothingThatLivesTogetherOverlaps) {
  std::mt19937 random(5);
  const auto draw = [&](Index least, Index most) {
    return std::uniform_int_distribution<Index>(least, most)(random);
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<Lifetime> tensors;
    for (Index count = draw(1, 12); count > 0; --count) {
      const Index first = draw(-1, 8);
      tensors.push_back({draw(0, 3000), first, draw(first, 9)});
    }
    const MemoryPlan plan = plan_memory(tensors);
    Index sum = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Index end = plan.offset[i] + tensors[i].bytes.value();
      EXPECT_LE(end, plan.bytes.value());
      sum += (tensors[i].bytes.value() + 255) / 256 * 256;
      for (std::size_t j = 0; j < i; ++j) {
        const bool together =
            tensors[i].first <= tensors[j].last && tensors[j].first <= tensors[i].last;
        const bool apart =
            end <= plan.offset[j] || plan.offset[j] + tensors[j].bytes.value() <= plan.offset[i];
        EXPECT_TRUE(!together || apart) << "round " << round << ": " << i << " and " << j;
      }
    }
    EXPECT_LE(plan.bytes.value(), sum);
  }
}

TEST(MemoryPlan, AbsurdSizesAreTooLarge) {
  EXPECT_FALSE(plan_memory({{Size::most, 0, 1}, {Size::most, 1, 2}}).bytes.fits());
  EXPECT_EQ(plan_memory({}).bytes.value(), 0);
}

}  // namespace
}  // namespace convoy::network
