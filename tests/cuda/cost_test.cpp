// The cost model against tiles measured on an H200: a stage that is in no table must still come
// near its best tile.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/fit/h200.hpp"
#include "bench/fit/measured_tiles.hpp"
#include "cuda/families.hpp"
#include "cuda/known_gpus.hpp"
#include "cuda/sm90/halo_tile.hpp"
#include "verify/source_path.hpp"

namespace convoy::cuda::sm90 {
namespace {

Picks picks_in(const std::string& result) {
  return picks_of(measured_tiles(source_path("bench/fit/h200/") + result, h200()), h200(),
                  HaloCosts());
}

TEST(CostModel, PicksNearlyTheBestOfWhatItWasFittedTo) {
  const Picks picks = picks_in("tiles.json");
  EXPECT_GE(picks.stages, 460u);
  EXPECT_LE(picks.mean, 1.013);
  EXPECT_LE(picks.worst, 1.2);
  EXPECT_LE(picks.slow, 7u);
}

TEST(CostModel, PicksNearlyTheBestOfStagesThatItNeverSaw) {
  const Picks picks = picks_in("tiles-unseen.json");
  EXPECT_GE(picks.stages, 360u);
  EXPECT_LE(picks.mean, 1.021);
  EXPECT_LE(picks.worst, 1.29);
  EXPECT_LE(picks.slow, 19u);
}

TEST(CostModel, FirstIsWithinAFifthOfWhatWasMeasured) {
  const Machine machine = machine_of(h200());
  int rows = 0;
  for (const char* name :
       {"targets", "targets-without-pool", "resnet50", "unet", "yolov8n", "mobilenetv2"}) {
    std::ifstream file(source_path("bench/results/h200/") + name + ".json");
    ASSERT_TRUE(file) << name;
    const nlohmann::json results = nlohmann::json::parse(file);
    for (const auto& row : results["rows"]) {
      if (row["kernel"] != "first") continue;
      const Stage stage = parse_stage(row["stage"].get<std::string>());
      const double measured =
          2.0 * static_cast<double>(shapes_of(stage).macs) / (row["gflops"].get<double>() * 1e9);
      const double predicted =
          first().cost(stage, first().tiles(stage, machine).front(), machine).seconds;
      EXPECT_NEAR(predicted / measured, 1, 0.2) << to_text(stage);
      ++rows;
    }
  }
  EXPECT_GE(rows, 10);
}

// 1x1 on large planes is bound by memory, of which an H100 has 3.35 TB/s and an H200 4.8; 3x3 of
// many channels by products, of which both do as many.
TEST(CostModel, HaloKnowsTheMemoryOfTheGpu) {
  const DeviceFacts h100 = known_gpu("h100").value();
  const auto longer = [&](const char* text) {
    const Stage stage = parse_stage(text);
    const HaloTile tile = halo_tiles(stage, h200()).front();
    const HaloLayout layout = halo_layout(stage, tile, h200());
    return halo_seconds(stage, tile, layout, h100) / halo_seconds(stage, tile, layout, h200());
  };
  EXPECT_GT(longer("f16:n32h112c64k64r1+bias+relu"), 1.2);
  EXPECT_NEAR(longer("f16:n32h14c512k512r3pad1+bias+relu"), 1, 0.05);
}

}  // namespace
}  // namespace convoy::cuda::sm90
