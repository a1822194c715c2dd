// halo_padded on a GPU: any C and K, with the bits of `general` on integers; image for image the
// same bits in a smaller batch.
#include <gtest/gtest.h>

#include <cstring>

#include "gpu_case.hpp"

namespace convoy {
namespace {

class GpuHaloPadded : public GpuTest {};

TEST_F(GpuHaloPadded, GivesTheBitsOfGeneral) {
  for (const char* text : {"f16:n2h9w11c20k36r3pad1+bias+relu+max2",    // words of four channels
                           "bf16:n3h8w5c6k10r3pad1+bias+leaky(0.1)",    // of two
                           "f16:n2h7w9c13k27r5pad2+bias+relu6",         // of one
                           "f16:n2h7c5k16r3pad1+bias+relu+max2",        // only C
                           "bf16:n2h7c16k5r3stride2pad1+clip(-1,2.3)",  // only K, no bias
                           "f16:n1h1c1k1r1+bias", "f16:n1h30c65k129r1+relu",
                           "f16:n2h9w11c20k36r3pad1nchw+bias+relu+max2"}) {
    SCOPED_TRACE(text);
    const Stage stage = parse_stage(text);
    const char* name = stage.layout == Layout::nchw ? "halo_padded_nchw" : "halo_padded";
    const GpuCase fast(stage, Values::integers, gpu0), slow(stage, Values::integers, gpu0);
    const Plan plan(fast.stage, fast.w, options_for(gpu0, name)),
        general(slow.stage, slow.w, options_for(gpu0, "general"));
    plan.run(fast.operands()).or_throw();
    general.run(slow.operands()).or_throw();
    EXPECT_EQ(fast.outputs(), slow.outputs());
  }
}

TEST_F(GpuHaloPadded, FewerImagesGiveTheSameBits) {
  const GpuCase all(parse_stage("f16:n5h10w14c20k44r3pad1+bias+relu+max2"), Values::normal, gpu0);
  const Plan plan(all.stage, all.w, options_for(gpu0, "halo_padded"));
  plan.run(all.operands()).or_throw();
  const Tensor expected = all.y.to({});
  Tensor two(*all.stage.out, {2, 5, 7, 44}, gpu0);
  Operands operands = all.operands();
  operands.x = images(all.x, 3, 2);
  operands.y = two;
  plan.run(operands).or_throw();
  const Tensor got = two.to({});
  EXPECT_EQ(
      std::memcmp(got.view().data, expected.data<std::byte>() + 3 * 5 * 7 * 44 * 2, got.bytes()),
      0);
}

}  // namespace
}  // namespace convoy
