// The depthwise family's geometry, refusals and cost model: needs no GPU.
#include "cuda/any/depthwise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/fit/h200.hpp"
#include "verify/source_path.hpp"

namespace convoy::cuda {
namespace {

TEST(Depthwise, TilesCoverTheOutputOnce) {
  for (const char* text :
       {"f16:n1h112c32k32r3pad1groups32", "f16:n1h7c960k960r3pad1groups960",
        "f16:n2h9w13c20k20r5stride2pad2groups20", "n1h1w300c6k6r1s9pad0x4groups6",
        "f16:n1h15c144k144r3pad1groups144+max2", "f16:n1h15c144k144r3pad1groups144+max2ceil",
        "f16:n1h3w70000c4k4r3pad1groups4", "f16:n1h1c4k4r1groups4",
        "bf16:n2h20c21k21r3pad1groups21", "n1h9c131k131r5pad2groups131+max2"}) {
    const Stage stage = parse_stage(text);
    const Shapes shapes = shapes_of(stage);
    EXPECT_EQ(depthwise_refusals(stage), std::vector<std::string>()) << text;
    for (const DepthwiseTile& tile : depthwise_tiles(stage)) {
      SCOPED_TRACE(std::string(text) + " " + std::to_string(tile.rows) + "x" +
                   std::to_string(tile.columns));
      const DepthwiseLayout at = depthwise_layout(stage, tile);
      EXPECT_GE(at.lanes * at.across * at.down, 1);
      EXPECT_LE(at.lanes * at.across * at.down, depthwise_threads);
      const auto covers = [](Index size, Index a_block, Index blocks) {
        EXPECT_GE(a_block * blocks, size);
        EXPECT_LT(a_block * (blocks - 1), size);  // no CTA without work
      };
      const Index vector = depthwise_channels(stage);
      covers(stage.c, at.lanes * vector, at.channel_blocks);
      covers(at.columns, at.across * tile.columns, at.column_blocks);
      covers(at.rows, at.down * tile.rows, at.row_blocks);
      const Index window = stage.pool ? 2 : 1;
      EXPECT_LE(at.rows, shapes.p);
      EXPECT_GT(at.rows, window * (shapes.out_h - 1));
      EXPECT_LE(at.columns, shapes.q);
      EXPECT_GT(at.columns, window * (shapes.out_w - 1));
      EXPECT_EQ(tile.rows % window, 0);
      EXPECT_EQ(tile.columns % window, 0);
    }
  }
}

TEST(Depthwise, RefusesWithEveryReason) {
  EXPECT_EQ(depthwise_refusals(parse_stage("f16:n1h8c6k6r3groups6")), std::vector<std::string>());
  EXPECT_EQ(
      depthwise_refusals(parse_stage("n1h8c6k6r3groups6+max3")),
      std::vector<std::string>{"the pool is max 3x3 with stride 3x3, expected none or max 2x2 with "
                               "stride 2"});
  EXPECT_EQ(depthwise_refusals(parse_stage("u8:n1h8c8k16r3groups8nchw+norm+max3+keep(act)")).size(),
            6u);
  EXPECT_EQ(depthwise_refusals(parse_stage("f16:n1h8c8k8r3groups4+if(1)")).size(), 2u);
}

// Tiles measured on an H200: what the cost model picks must come near the best of them.
TEST(Depthwise, CostModelPicksNearTheBestMeasured) {
  std::ifstream file(source_path("bench/fit/h200/depthwise-tiles.json"));
  ASSERT_TRUE(file) << "bench/fit/h200/depthwise-tiles.json is missing";
  const nlohmann::json results = nlohmann::json::parse(file);
  const Machine machine = machine_of(h200());
  double sum = 0;
  for (const auto& row : results["rows"]) {
    const Stage stage = parse_stage(row["stage"].get<std::string>());
    std::map<std::string, double> measured;
    for (const auto& tile : row["tiles"]) measured[tile[0]] = tile[1];
    const auto tiles = depthwise_tiles(stage);
    const auto seconds = [&](const DepthwiseTile& tile) {
      return depthwise_seconds(stage, tile, machine);
    };
    const auto picked =
        std::min_element(tiles.begin(), tiles.end(),
                         [&](const auto& a, const auto& b) { return seconds(a) < seconds(b); });
    const double us =
        measured.at(std::to_string(picked->rows) + "x" + std::to_string(picked->columns));
    double best = us;
    for (const auto& [name, other] : measured) best = std::min(best, other);
    EXPECT_LE(us, 1.35 * best) << row["stage"];
    sum += us / best;
  }
  ASSERT_GE(results["rows"].size(), 20u);
  EXPECT_LE(sum / static_cast<double>(results["rows"].size()), 1.06);
}

}  // namespace
}  // namespace convoy::cuda
