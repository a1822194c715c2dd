// What `explain --map` says of the source documents' examples, against their own figures.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/machine.hpp"
#include "cuda/known_gpus.hpp"
#include "inspect/kernel_map/kernel_map.hpp"

namespace convoy::inspect {
namespace {

/// What explain --map prints of a fact.
std::string fact(const KernelMap& map, const std::string& name) {
  for (const MapFact& one : map.facts())
    if (one.name == name) return one.value;
  return "no fact " + name;
}

// The second document: CUTLASS's multistage kernel at C = 128, R = S = 3 with three stages.
TEST(KernelMapFigures, SecondDocument) {
  const Stage stage = parse_stage("f16:n32h56c128k512r3pad1");
  const auto map = map_published(stage, "cutlass_multistage");
  EXPECT_EQ(fact(*map, "iterations"), "9");
  EXPECT_EQ(fact(*map, "slots"), "3");
  EXPECT_EQ(fact(*map, "accesses"), "4") << "kStrided = 64 rows / 16";
  EXPECT_EQ(fact(*map, "prologue"), "2 tiles");
  EXPECT_EQ(fact(*map, "mainloop"), "7 iterations");
  EXPECT_EQ(fact(*map, "swizzle"), "2") << "K = 512 is four tiles along gemm_n";
  EXPECT_EQ(fact(*map_published(parse_stage("f16:n32h56c128k128r3pad1"), "cutlass_multistage"),
                 "swizzle"),
            "0");
  const ThreadStep thread = map->thread_step(map->tile_at(1, 0), 17, 0);
  ASSERT_EQ(thread.rows.size(), 4U);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(thread.rows[static_cast<std::size_t>(i)][1], std::to_string(64 + 1 + 16 * i))
        << "offset_npq";
  // Its chart: slots 0 and 1 in the prologue; iteration i multiplies slot i % 3 and loads tile i +
  // 2 into slot (i + 2) % 3; the last two load nothing.
  const Pipeline pipe = map->pipeline();
  ASSERT_EQ(pipe.lines.size(), 11U);
  EXPECT_EQ(pipe.prologue, 2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(pipe.lines[static_cast<std::size_t>(i)].loads[0].slot, i);
  for (int i = 0; i < 9; ++i) {
    const PipelineLine& line = pipe.lines[static_cast<std::size_t>(i) + 2];
    EXPECT_EQ(line.step, i);
    EXPECT_EQ(line.math_slots[0], i % 3);
    EXPECT_EQ(line.phase, i < 7 ? PipelinePhase::loop : PipelinePhase::drain);
    ASSERT_EQ(line.loads.size(), i < 7 ? 1U : 0U);
    if (i < 7) {
      EXPECT_EQ(line.loads[0].load, i + 2);
      EXPECT_EQ(line.loads[0].slot, (i + 2) % 3);
    }
  }
}

// The third document: cuDNN's volta_fp16_s884cudnn_fp16_128x128 on 256 x 14 x 14 x 256, 512
// filters.
TEST(KernelMapFigures, ThirdDocument) {
  const Stage stage = parse_stage("f16:n256h14c256k512r3pad1");
  const auto map = map_published(stage, "cudnn_volta");
  EXPECT_EQ(fact(*map, "grid"), "392 x 4");
  EXPECT_EQ(fact(*map, "CTA"), "128 threads");
  EXPECT_EQ(fact(*map, "tile"), "128 x 128 x 32");
  EXPECT_EQ(fact(*map, "shared memory"), "33280 bytes");
  EXPECT_EQ(fact(*map, "blocks"), "0, 2080, 4160, 6240");
  EXPECT_EQ(fact(*map, "accumulators"), "128");
  EXPECT_EQ(fact(*map, "instructions"), "512 HMMA");
  EXPECT_EQ(fact(*map, "staged sums"), "18432 bytes");
  EXPECT_EQ(fact(*map, "iterations"), "72") << "loopk: 2304 / 32";
  const SharedMemoryMap shared = map->shared_memory();
  EXPECT_EQ(shared.bytes, 33280);
  // Why 32 bytes lie between blocks.
  const SharedAccess& write = shared.accesses.front();
  EXPECT_EQ(write.use.conflicts(), 0);
  EXPECT_EQ(write.plain.conflicts(), 12);
  const AccumulatorRow& row = shared.accumulators.front();
  EXPECT_EQ(std::vector<int>(row.registers.begin(), row.registers.begin() + 8),
            (std::vector<int>{0, 1, 4, 5, 32, 33, 36, 37}));
  // Our own kernel on the same tile: the same grid, and registers that hold eight neighbours.
  const auto own = map_window(stage, cuda::machine_of(cuda::h200()), "128x128");
  EXPECT_EQ(fact(*own, "grid"), "392 x 4");
  EXPECT_EQ(fact(*own, "iterations"), "72");
  EXPECT_EQ(fact(*own, "accumulators"), "128");
  const SharedMemoryMap ours = own->shared_memory();
  for (const SharedAccess& access : ours.accesses) EXPECT_EQ(access.conflicts, 0) << access.name;
  const AccumulatorRow& first = ours.accumulators.front();
  EXPECT_EQ(std::vector<int>(first.columns.begin(), first.columns.begin() + 8),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace convoy::inspect
