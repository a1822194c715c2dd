// What `explain --smem` and `--pipe` count: banks that collide, and slots that are read and filled.
#include <gtest/gtest.h>

#include "inspect/kernel_map/kernel_map.hpp"
#include "kernel_map_points.hpp"

namespace convoy::inspect {
namespace {

TEST(KernelMap, BanksCountWordsThatCollide) {
  std::vector<int> row, column, one;
  for (int lane = 0; lane < 32; ++lane) {
    row.push_back(4 * lane);
    column.push_back(128 * lane);
    one.push_back(64);
  }
  EXPECT_EQ(bank_use(row, 4).conflicts(), 0);
  EXPECT_EQ(bank_use(column, 4).conflicts(), 31);
  EXPECT_EQ(bank_use(one, 4).conflicts(), 0) << "one word is read once";
  EXPECT_EQ(bank_use(column, 16).wavefronts, 32) << "eight lanes at a time";
  EXPECT_EQ(bank_use(column, 16).conflicts(), 28);
  std::vector<int> few(32, -1);
  few[3] = 0, few[4] = 128;
  EXPECT_EQ(bank_use(few, 16).conflicts(), 1);
}

// As ncu counts `fma` on an H200: bench/results/h200/bank-conflicts.json.
TEST(KernelMap, PhasesOfLoadsAreJoinedWherePairsAgree) {
  std::vector<int> neighbours, same, fours, pairs;
  for (int lane = 0; lane < 32; ++lane) {
    neighbours.push_back(16 * (lane % 8));  // every phase reads the same 128 bytes
    same.push_back(lane / 16 * 16);
    fours.push_back(lane / 8 * 16);
    pairs.push_back(lane % 2 * 16 + lane / 4 * 32);  // lanes i and i ^ 2 agree
  }
  const bool joins = true;
  EXPECT_EQ(bank_use(neighbours, 16, joins).wavefronts, 4);
  EXPECT_EQ(bank_use(same, 8, joins).wavefronts, 1);
  EXPECT_EQ(bank_use(fours, 16, joins).wavefronts, 2) << "each half of a warp by itself";
  EXPECT_EQ(bank_use(pairs, 16, joins).wavefronts, 2);
  EXPECT_EQ(bank_use(fours, 16).wavefronts, 4) << "not of stores, nor of ldmatrix";
}

// What a launch of each pipeline does with its slots: no load into a slot that is still read.
TEST(KernelMap, PipelinesNeverOverwriteWhatIsRead) {
  const Machine machine = cuda::machine_of(cuda::h200());
  for (const char* text :
       {"f16:n2h14c256k512r3pad1", "f16:n1h28c128k64r5pad2+max2", "f16:n64h56c64k64r1",
        "f16:n32h56c64k128r3pad1stride2", "f16:n64h56c64k64r3pad1groups8", "f16:n64h56c256k7r3pad1",
        "f16:n64h56c256k64r1"}) {
    const Stage stage = parse_stage(text).normalised();
    for (const auto& map : maps_of(stage, machine)) {
      const Pipeline pipe = map->pipeline();
      // Of each ring, the load that each slot holds.
      std::vector<std::vector<Index>> held;
      for (const PipelineRing& ring : pipe.rings)
        held.emplace_back(static_cast<std::size_t>(ring.slots), -1);
      Index last = -1;
      for (std::size_t i = 0; i < pipe.lines.size(); ++i) {
        const PipelineLine& line = pipe.lines[i];
        if (pipe.left_out > 0 && i == pipe.left_out_at) break;
        for (std::size_t ring = 0; ring < line.math_slots.size(); ++ring) {
          const auto slot = static_cast<std::size_t>(line.math_slots[ring]);
          ASSERT_GE(held[ring][slot], 0) << text << " reads an empty slot in step " << line.step;
          if (pipe.rings.size() == 1) {
            ASSERT_EQ(held[0][slot], line.step);
          }
        }
        for (const PipelineLoad& load : line.loads) {
          const auto ring = static_cast<std::size_t>(load.ring);
          if (!line.math_slots.empty()) {
            ASSERT_NE(load.slot, line.math_slots[ring]) << text << " step " << line.step;
          }
          held[ring][static_cast<std::size_t>(load.slot)] = load.load;
        }
        if (line.step >= 0) {
          ASSERT_EQ(line.step, last + 1);
          last = line.step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace convoy::inspect
