#include "convoy/dlpack.hpp"

#include <gtest/gtest.h>

#include <array>

#include "foreign_dlpack.hpp"  // behind ours; dlpack_before_test.cpp has it before

namespace convoy {
namespace {

// A tensor as another library would hand it over: it counts how often it is deleted.
struct Foreign {
  std::array<float, 64> data{};
  std::array<std::int64_t, 4> shape{1, 2, 2, 3}, stride{16, 8, 4, 1};
  int deleted = 0;
  DLManagedTensor managed{};
  Foreign() {
    managed.dl_tensor = {data.data(),  {kDLCPU, 0},   4, {kDLFloat, 32, 1},
                         shape.data(), stride.data(), 8};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
  }
};

std::string error_of(const Foreign& foreign) {
  try {
    from_dlpack(foreign.managed);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DLPack, ViewsAForeignTensor) {
  Foreign foreign;
  {
    const DLPackOwner owner(&foreign.managed);
    const TensorView view = from_dlpack(*owner);
    EXPECT_EQ(view.data, foreign.data.data() + 2);
    EXPECT_EQ(describe(view), "f32[1,2,2,3] on cpu, strides [16,8,4,1]");
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
  foreign.managed.dl_tensor.strides = nullptr;
  EXPECT_TRUE(from_dlpack(foreign.managed).contiguous());
}

TEST(DLPack, SaysWhatItCannotTake) {
  Foreign foreign;
  DLTensor& tensor = foreign.managed.dl_tensor;
  tensor.dtype = {kDLFloat, 64, 1};
  EXPECT_NE(error_of(foreign).find("64 bits"), std::string::npos);
  tensor.dtype = {kDLFloat, 32, 4};
  EXPECT_NE(error_of(foreign).find("4 lanes"), std::string::npos);
  tensor.dtype = {kDLFloat, 32, 1};
  tensor.ndim = 6;
  EXPECT_NE(error_of(foreign).find("6 axes"), std::string::npos);
  tensor.ndim = 4;
  tensor.device.device_id = -1;
  tensor.device.device_type = kDLCUDA;
  EXPECT_NE(error_of(foreign).find("number -1"), std::string::npos);
  tensor.device = {kDLCPU, 0};
  foreign.shape[2] = -2;
  EXPECT_NE(error_of(foreign).find("axis 2"), std::string::npos);
  foreign.shape = {1LL << 40, 1LL << 40, 1, 1};
  EXPECT_NE(error_of(foreign).find("2^60"), std::string::npos);
  foreign.shape = {1, 1, 1, 1};
  tensor.data = nullptr;
  EXPECT_NE(error_of(foreign).find("null pointer"), std::string::npos);
}

TEST(DLPack, ComesBackAsItWent) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::u8, DType::i32}) {
    Tensor tensor(dtype, {2, 3, 5});
    const void* const data = tensor.view().data;
    // Given away: the memory outlives the Tensor it came from.
    const DLPackOwner given = to_dlpack(std::move(tensor));
    const TensorView view = from_dlpack(*given);
    EXPECT_EQ(view.data, data);
    EXPECT_EQ(view.dtype, dtype);
    EXPECT_EQ(describe(view), std::string(to_text(dtype)) + "[2,3,5] on cpu, contiguous");
  }
  Tensor kept(DType::f32, {4, 4});
  {
    const DLPackOwner lent = to_dlpack(kept.view().channels(1, 2));
    EXPECT_EQ(from_dlpack(*lent).stride[0], 4);
    EXPECT_EQ(from_dlpack(*lent).shape[1], 2);
  }
  kept.data<float>()[0] = 1;  // still ours
}

TEST(DLPack, VersionedComesBackAsItWent) {
  Tensor tensor(DType::bf16, {2, 3, 5});
  const void* const data = tensor.view().data;
  const DLPackVersionedOwner given = to_dlpack_versioned(std::move(tensor));
  EXPECT_EQ(given->version.major, 1U);
  EXPECT_EQ(given->flags, 0U);
  EXPECT_EQ(given->dl_tensor.ndim, 3);
  EXPECT_EQ(given->dl_tensor.dtype.code, kDLBfloat);
  EXPECT_EQ(from_dlpack(*given).data, data);
  EXPECT_EQ(describe(from_dlpack(*given)), "bf16[2,3,5] on cpu, contiguous");
  EXPECT_FALSE(tensor.view());
}

TEST(DLPack, VersionedSaysWhatMayNotBeWritten) {
  const auto error_of_versioned = [](const DLManagedTensorVersioned& managed) {
    try {
      from_dlpack(managed);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Tensor kept(DType::f32, {4, 4});
  const DLPackVersionedOwner lent = to_dlpack_read_only(kept);
  EXPECT_EQ(lent->flags, 1U);
  EXPECT_EQ(from_dlpack_read_only(*lent).data, kept.view().data);
  EXPECT_NE(error_of_versioned(*lent).find("read only"), std::string::npos);
  lent->flags = 2 | 4;  // copied; padded sub-bytes, which none of our types has
  EXPECT_EQ(error_of_versioned(*lent), "");
  EXPECT_EQ(from_dlpack_read_only(*lent).data, kept.view().data);
  lent->version = {2, 0};
  EXPECT_NE(error_of_versioned(*lent).find("version 2.0, expected 1.x"), std::string::npos);
  EXPECT_THROW(from_dlpack_read_only(*lent), Error);
  lent->version = {1, 9};  // minor versions keep the layout
  EXPECT_EQ(error_of_versioned(*lent), "");
}

TEST(DLPack, VersionedCallsTheDeleterOnce) {
  int deleted = 0;
  DLManagedTensorVersioned managed{};
  managed.manager_ctx = &deleted;
  managed.deleter = [](DLManagedTensorVersioned* self) { ++*static_cast<int*>(self->manager_ctx); };
  { const DLPackVersionedOwner owner(&managed); }
  EXPECT_EQ(deleted, 1);
  managed.deleter = nullptr;
  { const DLPackVersionedOwner owner(&managed); }
}

TEST(TensorView, StridesOfEmptyTensorsDoNotOverflow) {
  const Index large = Index{1} << 40;
  EXPECT_THROW(TensorView(nullptr, DType::f32, {0, large, large}), Error);
  EXPECT_THROW(TensorView(nullptr, DType::f32, {large, large, 0}), Error);
  EXPECT_THROW(Tensor(DType::f32, {0, large, large}), Error);
  TensorView view(nullptr, DType::f32, {0, large, 2});
  EXPECT_EQ(view.elements(), 0);
  EXPECT_TRUE(view.contiguous());
  view.shape = {0, large, large};  // as a foreign library's may be
  EXPECT_TRUE(view.contiguous());
}

}  // namespace
}  // namespace convoy
