// halo_neuron_pass: what it is asked to run inside, what it costs; on a GPU its bits, which are
// those of `halo` with the neuron in its epilogue, whatever n is.
#include <gtest/gtest.h>

#include "bench/fit/h200.hpp"
#include "cuda/families.hpp"
#include "cuda/sm90/halo_layout.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "gpu_case.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"

namespace convoy {
namespace {

using namespace cuda;

const Machine& h200_machine() {
  static const Machine machine = machine_of(h200());
  return machine;
}

TEST(Neurons, RunAConvolutionOfAllStepsImagesInside) {
  const auto inner = [](const char* text) { return to_text(stage_of_sums(parse_stage(text))); };
  EXPECT_EQ(inner("f16:n3h9c16k24r3pad1+bias+lif(2,1)+soft+t4+max2+keep(pre)"),
            "f16:n12h9w9c16k24r3pad1out(f32)+bias");
  EXPECT_EQ(inner("bf16:n3h9c16k24r3+if(1)+t4+hold"), "bf16:n3h9w9c16k24r3out(f32)");
}

TEST(Neurons, SumsArePartsOfAsManyBytesAs16BitsAre) {
  const Stage sums = parse_stage("f16:n64h28c64k128r3pad1out(f32)+bias");
  Stage halves = sums;
  halves.out.reset();
  const sm90::HaloTile tile{.bh = 28, .schedule = sm90::Schedule::pingpong};
  const auto wide = sm90::halo_layout(sums, tile, h200()),
             narrow = sm90::halo_layout(halves, tile, h200());
  EXPECT_EQ(wide.staging, narrow.staging);
  EXPECT_EQ(2 * wide.stored_pixels, narrow.stored_pixels);
  EXPECT_EQ(2 * wide.piece_y, narrow.piece_y);
  const TensorMapArgs map = sm90::halo_y_map(sums, tile, 128);
  EXPECT_EQ(map.dtype, DType::f32);
  EXPECT_EQ(map.box[0], 32U);
  EXPECT_EQ(map.stride[1], 512U);
}

// Steps order nothing in the convolution: where few places leave multiprocessors idle, the pass is
// worth its time. Where sums would not stay in the L2, it is not.
TEST(Neurons, ThePassIsForSumsThatStayInTheL2) {
  PlanOptions options;
  options.device = gpu0;
  options.use_tuning = false;
  const auto chosen = [&](const char* text) {
    return std::string(select(parse_stage(text), h200_machine(), options, nullptr).kernel().name());
  };
  EXPECT_EQ(chosen("f16:n64h4c512k512r3pad1+bias+lif(2,1)+t4+max2"), "halo_neuron_pass");
  EXPECT_EQ(chosen("f16:n8h112c64k128r3pad1+bias+lif(2,1)+t4+max2"), "halo");
}

// The floor is the same convolution with a ReLU.
TEST(Neurons, HaloAloneTakesNoSums) {
  EXPECT_FALSE(
      sm90::halo().refusals(Chain{parse_stage("f16:n1h8c8k8r3out(f32)")}, h200_machine()).empty());
}

class GpuNeurons : public GpuTest {};

TEST_F(GpuNeurons, GiveTheBitsOfGeneral) {
  for (const char* text : {"f16:n3h9w13c16k24r3pad1+bias+if(3)+t3+max2+keep(pre,act)",
                           "bf16:n2h12c72k136r1+bias+lif(2,1.5)+soft+t5+hold",
                           "f16:n2h9w11c16k24r3pad1+bias+if(2)+t4+max3s2p1+keep(idx)",
                           "f16:n9h4c64k72r3pad1+bias+lif(1.5,1)+t2+max2+keep(act,idx)"})
    expect_bits_of_general(text, "halo_neuron_pass");
}

TEST_F(GpuNeurons, GiveTheBitsOfTheEpilogueWhateverNIs) {
  for (const char* text :
       {"f16:n9h13w17c72k200r3pad1+bias+lif(2,1)+t4+max2",
        "bf16:n9h14c128k64r3pad1+bias+lif(3,0.5)+t5+max2",
        "f16:n40h4c72k136r3pad1+bias+lif(2,1)+t4", "f16:n33h2c64k64r3pad1+if(1)+soft+t3",
        "f16:n9h15c16k72r5pad2+bias+lif(1.5,0.25)+t5+hold"}) {
    for (const Index n : {Index{0}, Index{1}, Index{3}}) {
      Stage stage = parse_stage(text);
      if (n > 0) stage.n = n;
      SCOPED_TRACE(to_text(stage));
      GpuCase one(stage, Values::normal, gpu0);
      std::vector<unsigned char> expected;
      for (const char* kernel : {"halo", "halo_neuron_pass"}) {
        one.poison();
        Plan(one.stage, one.w, options_for(gpu0, kernel)).run(one.operands()).or_throw();
        if (expected.empty()) expected = one.outputs();
        EXPECT_EQ(one.outputs(), expected) << kernel;
      }
    }
  }
}

}  // namespace
}  // namespace convoy
