// The measured table that ships for the H200 names what exists, and the user's own rows go over it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "bench/fit/h200.hpp"
#include "cuda/device.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

TEST(ShippedTables, AreRead) {
  ASSERT_FALSE(shipped_tuning_tables().empty());
  for (const std::string_view text : shipped_tuning_tables()) {
    std::string warning;
    EXPECT_GT(TuningCache::parse(text, warning).size(), 0U);
    EXPECT_EQ(warning, "");
  }
}

TEST(ShippedTables, NameTilesThatExist) {
  const Machine machine = cuda::machine_of(cuda::h200());
  for (const Stage& stage : read_shape_list(source_path("shapes/targets-gpu.txt"))) {
    PlanOptions options;
    options.device = machine.device;
    const Selection selection = select(stage, machine, options, &shipped_tuning());
    if (selection.kernel().name() != "halo") continue;  // the others have one tile each
    const TunedTile* row = shipped_tuning().find(machine, stage);
    ASSERT_NE(row, nullptr) << to_text(stage);
    EXPECT_TRUE(selection.tuned) << to_text(stage) << ": " << row->kernel << " " << row->tile
                                 << " is not there any more. Measure again: convoy tune.";
    EXPECT_EQ(selection.tile.tile.name, row->tile);
    EXPECT_NE(selection.why_tile.find("comes with Convoy"), std::string::npos);

    Stage twin = stage;
    twin.dtype = DType::bf16;
    const Selection of_twin = select(twin, machine, options, &shipped_tuning());
    EXPECT_EQ(of_twin.tile.tile.name, row->tile) << "bf16 takes the row of f16";
  }
}

TEST(ShippedTables, YieldToTheUsersOwnRows) {
  std::string folder = testing::TempDir() + "convoy-tuned-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  setenv("CONVOY_CACHE", folder.c_str(), 1);
  const Machine machine = cuda::machine_of(cuda::h200());
  const Stage stage = parse_stage("f16:n32h56c64k128r3pad1+bias+relu+max2");
  TuningCache own;
  own.set(machine, stage, {"halo", "a tile of theirs", 1e-6});
  save_tuning_cache(tuning_cache_path(), own);
  std::string warning;
  const auto both = user_tuning_cache(warning);
  EXPECT_EQ(warning, "");
  ASSERT_NE(both->find(machine, stage), nullptr);
  EXPECT_EQ(both->find(machine, stage)->tile, "a tile of theirs");
  EXPECT_FALSE(both->find(machine, stage)->shipped);
  EXPECT_EQ(both->size(), shipped_tuning().size());
  // What was tuned for another version of the tiles is passed over, not an error.
  PlanOptions options;
  options.device = machine.device;
  EXPECT_FALSE(select(stage, machine, options, both.get()).tuned);
  unsetenv("CONVOY_CACHE");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace convoy
