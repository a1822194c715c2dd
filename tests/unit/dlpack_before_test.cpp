// Another library's dlpack.h before ours; dlpack_test.cpp has it behind.
// clang-format off
#include "foreign_dlpack.hpp"
#include "convoy/dlpack.hpp"
// clang-format on

#include <gtest/gtest.h>

namespace convoy {
namespace {

TEST(DLPack, LivesBesideAnotherHeaderThatCameFirst) {
  const DLPackOwner owner = to_dlpack(Tensor(DType::f32, {2, 3}));
  EXPECT_EQ(owner->dl_tensor.ndim, 2);
  EXPECT_EQ(from_dlpack(*owner).shape[1], 3);
}

}  // namespace
}  // namespace convoy
