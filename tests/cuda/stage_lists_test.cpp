// tests/cuda/KERNEL-stages.txt: the awkward stages of each GPU kernel, or chains of them, which
// ctest runs by it. Kernels of one family may share a list, named by the first word of their names.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "bench/fit/h200.hpp"
#include "core/shape_list.hpp"
#include "cuda/device.hpp"
#include "plan/kernel_table.hpp"
#include "teaching/cutlass_pooled/cutlass_pooled.hpp"
#include "verify/coverage.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

std::string list_of(std::string_view kernel) {
  const auto file = [](std::string_view name) {
    return source_path("tests/cuda/") + std::string(name) + "-stages.txt";
  };
  const std::string own = file(kernel);
  return std::filesystem::exists(own) ? own : file(kernel.substr(0, kernel.find('_')));
}

TEST(StageLists, EveryKernelHasOneOfStagesThatItTakes) {
  const Machine machine = cuda::machine_of(cuda::h200());
  int lists = 0;
  for (const Kernel* kernel : kernel_table()) {
    if (kernel->device() != DeviceKind::cuda) continue;
    SCOPED_TRACE(kernel->name());
    const std::string file = list_of(kernel->name());
    ASSERT_TRUE(std::filesystem::exists(file)) << "make a list " << file;
    const std::vector<OwnedChain> chains = read_chain_list(file, true);
    EXPECT_GE(chains.size(), 6U);
    for (const OwnedChain& chain : chains) {
      std::vector<std::string> why = kernel->refusals(chain, machine);
      std::erase(why, cuda::teaching::cutlass_pooled_missing());
      EXPECT_EQ(why, std::vector<std::string>{}) << to_text(chain);
    }
    ++lists;
  }
  EXPECT_GE(lists, 12);
}

struct Covered {
  std::set<std::string> tiles, epilogues, tails;
};

// What drawn chains meet of a kernel, without a GPU.
Covered cover(std::string_view kernel) {
  const Machine machine = cuda::machine_of(cuda::h200());
  verify::Random random(2);
  verify::Coverage coverage;
  for (const verify::Check& check :
       verify::fill_coverage({}, 5, machine, std::string(kernel), random)) {
    EXPECT_EQ(check.kernel->name(), kernel);
    count(check, coverage);
  }
  Covered covered;
  for (const auto& [cell, count] : coverage) {
    EXPECT_GE(count, 5) << cell.tile << ", " << cell.epilogue << ", " << cell.tail;
    covered.tiles.insert(cell.tile);
    covered.epilogues.insert(cell.epilogue);
    covered.tails.insert(cell.tail);
  }
  return covered;
}

TEST(StageLists, DrawnChainsFillTheCoverageOfPair) {
  const auto [tiles, epilogues, tails] = cover("pair");
  EXPECT_GE(tiles.size(), 4U);
  EXPECT_EQ(epilogues.size(), 10U);
  EXPECT_EQ(tails, (std::set<std::string>{"k tail", "one pixel", "pixel tail", "whole"}));
}

TEST(StageLists, DrawnStagesFillTheCoverageOfTheLadder) {
  for (const std::string_view kernel : {"ladder_9_bounds", "ladder_10_half", "ladder_fma"}) {
    SCOPED_TRACE(kernel);
    const auto [tiles, epilogues, tails] = cover(kernel);
    EXPECT_EQ(tiles.size(), kernel == "ladder_9_bounds" ? 9U : 1U);
    EXPECT_EQ(epilogues, (std::set<std::string>{"none", "relu"}));
    EXPECT_TRUE(tails.contains("k tail") && tails.contains("pixel tail") &&
                tails.contains("one pixel") && tails.contains("whole"));
    EXPECT_EQ(tails.contains("c tail"), kernel == "ladder_9_bounds");
  }
}

TEST(StageLists, DrawnStagesFillTheCoverageOfFewFilters) {
  const auto [tiles, epilogues, tails] = cover("few_filters");
  EXPECT_EQ(tiles, (std::set<std::string>{"128 threads", "256 threads", "512 threads", "96 threads",
                                          "192 threads", "384 threads"}));
  EXPECT_GE(epilogues.size(), 5U);
  EXPECT_EQ(tails, (std::set<std::string>{"c tail", "k tail", "one pixel", "pixel tail"}));
}

TEST(StageLists, DrawnChainsFillTheCoverageOfSpikeResident) {
  const auto [tiles, epilogues, tails] = cover("spike_resident");
  std::set<std::string> teams{"any team"};
  for (const char* const size : {"1", "2", "4", "8", "16"})
    for (const char* const tasks : {"", ", small tasks"})
      teams.insert(std::string("teams of ") + size + tasks);
  EXPECT_EQ(tiles, teams);
  EXPECT_GE(epilogues.size(), 5U);
  EXPECT_EQ(tails, (std::set<std::string>{"c tail", "k tail", "one pixel", "pixel tail", "whole"}));
}

TEST(StageLists, DrawnStagesFillTheCoverageOfCutlassPooled) {
  if (const std::string why = cuda::teaching::cutlass_pooled_missing(); !why.empty())
    GTEST_SKIP() << "skipped: " << why;
  const auto [tiles, epilogues, tails] = cover("cutlass_pooled");
  EXPECT_EQ(tiles, (std::set<std::string>{"128x128", "128x64"}));
  EXPECT_EQ(epilogues, std::set<std::string>{"relu max2"});
  EXPECT_EQ(tails, (std::set<std::string>{"k tail", "one pixel", "pixel tail", "whole"}));
}

}  // namespace
}  // namespace convoy
