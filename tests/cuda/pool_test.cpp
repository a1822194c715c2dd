// halo_pool on a GPU: any pool and second outputs, with the bits of `general` on integers and those
// of `halo` otherwise.
#include <gtest/gtest.h>

#include <cstring>

#include "gpu_case.hpp"

namespace convoy {
namespace {

class GpuHaloPool : public GpuTest {};

TEST_F(GpuHaloPool, GivesTheBitsOfGeneral) {
  for (const char* text :
       {"f16:n2h9w11c16k24r3pad1+bias+relu+max2+keep(pre,act,idx)",
        "f16:n2h9w11c16k24r3pad1+bias+relu6+max2+keep(idx)",
        "bf16:n3h8c8k8r3pad1+clip(-1,2.3)+max2+keep(pre)",
        "f16:n3h8c8k16r3pad1+leaky(0.1)+max2+keep(act,idx)",
        "f16:n3h8c8k16r3pad1+bias+leaky(-0.5)+max2", "f16:n2h7c16k8r1+bias+relu+keep(pre,act)",
        "f16:n2h15c32k64r3stride2pad1+bias+relu+max3s2p1",
        "bf16:n1h12w9c24k16r3pad1+bias+max3x2s2x1p1d2ceil+keep(act,idx)",
        "f16:n2h10c64k72r5pad2+bias+relu+max3s1"})
    expect_bits_of_general(text, "halo_pool");
}

TEST_F(GpuHaloPool, SecondOutputsChangeNoBitOfTheFirst) {
  const char* stage = "f16:n5h20w14c72k40r3pad1+bias+relu+max2";
  GpuCase plain(parse_stage(stage), Values::normal, gpu0),
      kept(parse_stage(std::string(stage) + "+keep(pre,act,idx)"), Values::normal, gpu0);
  const Plan halo(plain.stage, plain.w, options_for(gpu0, "halo")),
      pool(kept.stage, kept.w, options_for(gpu0, "halo_pool"));
  halo.run(plain.operands()).or_throw();
  pool.run(kept.operands()).or_throw();
  const Tensor y = plain.y.to({}), again = kept.y.to({});
  EXPECT_EQ(std::memcmp(y.view().data, again.view().data, y.bytes()), 0);
}

}  // namespace
}  // namespace convoy
