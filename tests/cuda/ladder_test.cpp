// The ladder: which rung and tiles a stage gets, what is refused, packed weights; on a GPU, second
// outputs and sums in fp16.
#include "teaching/ladder/ladder.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/fit/h200.hpp"
#include "cuda/device.hpp"
#include "gpu_case.hpp"
#include "plan/kernel_table.hpp"

namespace convoy {
namespace {

using cuda::teaching::ladder_rung;
using cuda::teaching::ladder_size;
using cuda::teaching::LadderRung;
using cuda::teaching::LadderSize;

/// From the bottom to the top.
std::vector<const Kernel*> rungs() {
  std::vector<const Kernel*> rungs;
  for (const Kernel* kernel : kernel_table())
    if (kernel->facts().rung != nullptr) rungs.push_back(kernel);
  return rungs;
}

TEST(Ladder, SizeFollowsChannelsAndFilters) {
  EXPECT_EQ(ladder_size(64, 64), LadderSize::large);
  EXPECT_EQ(ladder_size(63, 64), LadderSize::medium);
  EXPECT_EQ(ladder_size(64, 63), LadderSize::medium);
  EXPECT_EQ(ladder_size(16, 16), LadderSize::medium);
  EXPECT_EQ(ladder_size(15, 512), LadderSize::naive);
  EXPECT_EQ(ladder_size(512, 15), LadderSize::naive);
}

TEST(Ladder, FewChannelsRunRung0AndOddOnesTheLastThatLoadsThemOneByOne) {
  const Stage few = parse_stage("f16:n1h8c3k64r3pad1"), odd = parse_stage("f16:n1h8c17k64r3pad1"),
              eights = parse_stage("f16:n1h8c24k64r3pad1");
  for (const LadderRung rung : {LadderRung::scalar, LadderRung::shared, LadderRung::bounds})
    EXPECT_EQ(ladder_rung(rung, few), LadderRung::scalar);
  EXPECT_EQ(ladder_rung(LadderRung::shared, odd), LadderRung::shared);
  EXPECT_EQ(ladder_rung(LadderRung::vector, odd), LadderRung::buffered);
  EXPECT_EQ(ladder_rung(LadderRung::bounds, odd), LadderRung::buffered);
  EXPECT_EQ(ladder_rung(LadderRung::bounds, eights), LadderRung::bounds);
}

TEST(Ladder, EveryRungRunsByNameOnlyAndEachThingCanBeTakenAway) {
  const Machine machine = cuda::machine_of(cuda::h200());
  const Stage stage = parse_stage("f16:n2h16c64k128r3pad1+bias+relu+keep(pre)");
  ASSERT_EQ(rungs().size(), 11U);
  for (const Kernel* kernel : rungs()) {
    SCOPED_TRACE(kernel->name());
    EXPECT_TRUE(kernel->facts().by_name_only);
    EXPECT_EQ(kernel->refusals(stage, machine), std::vector<std::string>{});
    const Rung& rung = *kernel->facts().rung;
    if (rung.without_kernel.empty()) continue;
    const Kernel* const without = find_kernel(rung.without_kernel, DeviceKind::cuda);
    ASSERT_NE(without, nullptr);
    int found = 0;
    for (const Tile& tile : without->tiles(stage, machine))
      found += rung.without_tile.empty() || tile.name == rung.without_tile;
    EXPECT_EQ(found, 1) << rung.without_tile;
  }
}

TEST(Ladder, RefusesWhatItWasNotWrittenFor) {
  const Machine machine = cuda::machine_of(cuda::h200());
  const struct {
    const char *stage, *why;
  } cases[] = {{"bf16:n1h8c16k16r3", "x is bf16, expected f16"},
               {"f16:n1h8c16k16r3+leaky(0.1)", "the activation is leaky, expected none or relu"},
               {"f16:n1h8c16k16r3+if(1)+t2", "the activation is if"},
               {"f16:n1h8c16k16r3+max2", "the pool is max 2x2 with stride 2x2, expected none"},
               {"f16:n1h8c16k16r3groups2", "groups"},
               {"f16:n1h8c16k16r3nchw", "the layout is nchw, expected nhwc"},
               {"f16:n1h8c16k16r3out(f32)", "y is f32, expected f16"},
               {"f16:n1h40c16k16r17", "17x17"},
               {"f16:n30000h200c16k16r1", "output pixels"},
               {"f16:n4000h500c16k512r1", "at most"}};
  for (const auto& [text, why] : cases) {
    SCOPED_TRACE(text);
    for (const Kernel* kernel : rungs()) {
      const std::vector<std::string> refusals = kernel->refusals(parse_stage(text), machine);
      EXPECT_TRUE(std::ranges::any_of(refusals, [&](const std::string& reason) {
        return reason.find(why) != std::string::npos;
      })) << kernel->name();
    }
  }
  // Sums in fp16 are of Tensor Cores, whose tiles want 16 bytes.
  const Kernel* const half = find_kernel("ladder_10_half", DeviceKind::cuda);
  EXPECT_EQ(half->refusals(parse_stage("f16:n1h8c15k16r3"), machine).size(), 2U);
}

TEST(Ladder, PacksWeightsWithZerosAround) {
  const Stage stage = parse_stage("f16:n1h8c3k2r2s1");
  std::vector<float> w(static_cast<std::size_t>(shapes_of(stage).w_elements));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i + 1);
  const std::vector<float> packed = cuda::teaching::ladder_weights(stage, w.data());
  ASSERT_EQ(packed.size(), 128U * 2 * 32);
  float sum = 0;
  for (std::size_t row = 0; row < 4; ++row)
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(packed[row * 32 + c], w[row * 3 + c]);
      sum += w[row * 3 + c];
    }
  float all = 0;
  for (const float value : packed) all += value;
  EXPECT_EQ(all, sum);
}

class GpuLadder : public GpuTest {};

// Integers whose sums fp16 holds: an error in the order of summation or a lost product shows.
TEST_F(GpuLadder, SumsInHalfAreExactWhereTheyFit) {
  for (const char* text :
       {"f16:n2h9w13c24k40r3pad1+bias+keep(pre)", "f16:n3h9w13c72k136r3pad1+bias+relu+keep(pre)"})
    expect_bits_of_general(text, "ladder_10_half");
}

TEST_F(GpuLadder, FewerImagesGiveTheSameBits) {
  for (const Kernel* kernel : rungs()) {
    SCOPED_TRACE(kernel->name());
    expect_same_bits_of_fewer_images("f16:n5h10w14c72k72r3pad1+bias+relu", kernel->name());
  }
}

TEST_F(GpuLadder, TellsWhatItTakesOfTheGpu) {
  const Stage stage = parse_stage("f16:n2h16c64k128r3pad1+bias+relu+keep(pre)");
  const Machine machine = gpu::machine(0);
  for (const Kernel* kernel : rungs()) {
    SCOPED_TRACE(kernel->name());
    const auto resources =
        kernel->prepare(stage, kernel->tiles(stage, machine).front(), machine)->gpu_resources();
    ASSERT_FALSE(resources.empty());
    EXPECT_EQ(resources.front().kernel, kernel->name());
    EXPECT_GT(resources.front().registers, 0);
    EXPECT_GT(resources.front().ctas, 0);
    EXPECT_GT(resources.front().occupancy, 0);
    EXPECT_LE(resources.front().occupancy, 1);
  }
}

}  // namespace
}  // namespace convoy
