#include "convoy/dlpack.hpp"

#include <gtest/gtest.h>

#include <array>

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
  EXPECT_NE(error_of(foreign).find("no memory"), std::string::npos);
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
    EXPECT_EQ(describe(view), std::string(name(dtype)) + "[2,3,5] on cpu, contiguous");
  }
  Tensor kept(DType::f32, {4, 4});
  {
    const DLPackOwner lent = to_dlpack(kept.view().channels(1, 2));
    EXPECT_EQ(from_dlpack(*lent).stride[0], 4);
    EXPECT_EQ(from_dlpack(*lent).shape[1], 2);
  }
  kept.data<float>()[0] = 1;  // still ours
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
