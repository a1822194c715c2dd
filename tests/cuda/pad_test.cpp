// halo_padded on a GPU: any C and K, with the bits of `general` on integers; image for image the
// same bits in a smaller batch.
#include <gtest/gtest.h>

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
    const bool nchw = parse_stage(text).layout == Layout::nchw;
    expect_bits_of_general(text, nchw ? "halo_padded_nchw" : "halo_padded");
  }
}

TEST_F(GpuHaloPadded, FewerImagesGiveTheSameBits) {
  expect_same_bits_of_fewer_images("f16:n5h10w14c20k44r3pad1+bias+relu+max2", "halo_padded");
}

}  // namespace
}  // namespace convoy
