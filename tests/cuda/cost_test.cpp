// The cost model against tiles measured on an H200: a stage that is in no table must still come
// near its best tile.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cuda/families.hpp"
#include "cuda/sm90/halo_tile.hpp"
#include "h200.hpp"

namespace convoy::cuda::sm90 {
namespace {

// What the tiles that the model picks take, over the best measured: on average, at worst, and how
// many take a tenth more.
struct Picks {
  double mean = 0, worst = 0;
  std::size_t stages = 0, slow = 0;
};
Picks picks_of(const std::string& result) {
  std::ifstream file(std::string(CONVOY_SOURCE_DIR) + "/bench/results/h200/" + result);
  EXPECT_TRUE(file) << result << " is missing";
  if (!file) return {};
  std::map<std::string, std::map<std::string, double>>
      measured;  // later runs, of newer code, replace earlier
  const nlohmann::json results = nlohmann::json::parse(file);
  for (const auto& row : results["rows"]) {
    for (const auto& tile : row["tiles"]) measured[row["stage"]][tile[0]] = tile[1];
  }
  Picks picks;
  picks.stages = measured.size();
  for (const auto& [text, tiles] : measured) {
    double best = tiles.begin()->second, picked = 0;
    for (const auto& [name, us] : tiles) best = std::min(best, us);
    for (const HaloTile& tile : halo_tiles(parse_stage(text), h200())) {
      const auto found = tiles.find("halo." + tile.name());
      if (found == tiles.end()) continue;
      picked = found->second;
      break;
    }
    EXPECT_GT(picked, 0) << text << ": none of the measured tiles exists any more; measure again";
    picks.mean += picked / best / static_cast<double>(picks.stages);
    picks.worst = std::max(picks.worst, picked / best);
    if (picked > 1.10 * best) ++picks.slow;
  }
  return picks;
}

TEST(CostModel, PicksNearlyTheBestOfWhatItWasFittedTo) {
  const Picks picks = picks_of("tiles.json");
  EXPECT_GE(picks.stages, 370u);
  EXPECT_LE(picks.mean, 1.012);
  EXPECT_LE(picks.worst, 1.2);
  EXPECT_LE(picks.slow, 6u);
}

TEST(CostModel, PicksNearlyTheBestOfStagesThatItNeverSaw) {
  const Picks picks = picks_of("tiles-unseen.json");
  EXPECT_GE(picks.stages, 90u);
  EXPECT_LE(picks.mean, 1.02);
  EXPECT_LE(picks.worst, 1.3);
  EXPECT_LE(picks.slow, 3u);
}

TEST(CostModel, FirstIsWithinAFifthOfWhatWasMeasured) {
  const Machine machine = machine_of(h200());
  int rows = 0;
  for (const char* name :
       {"targets", "targets-without-pool", "resnet50", "unet", "yolov8n", "mobilenetv2"}) {
    std::ifstream file(std::string(CONVOY_SOURCE_DIR) + "/bench/results/h200/" + name + ".json");
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

}  // namespace
}  // namespace convoy::cuda::sm90
