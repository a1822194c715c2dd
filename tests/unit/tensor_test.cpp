// Tensors and views: what moves leave behind, and views filled in by hand with anything.
#include "convoy/tensor.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "convoy/dlpack.hpp"
#include "convoy/pinned.hpp"
#include "convoy/plan.hpp"

namespace convoy {
namespace {

constexpr Index largest_index = std::numeric_limits<Index>::max();

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Tensor, MovedFromIsEmpty) {
  Tensor a(DType::f32, {2, 3});
  const void* const memory = a.view().data;
  Tensor b(std::move(a));
  EXPECT_EQ(b.view().data, memory);
  EXPECT_FALSE(a.view());  // NOLINT(bugprone-use-after-move): what the test is about
  EXPECT_EQ(a.view().rank, 0);
  EXPECT_EQ(describe(a), "no tensor");
  a = std::move(b);
  EXPECT_EQ(a.view().data, memory);
  EXPECT_FALSE(b.view());  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(b.clone(), Error);
  Tensor& same = a;
  a = std::move(same);
  EXPECT_EQ(a.view().data, memory);
  EXPECT_EQ(a.elements(), 6);
  a.data<float>()[5] = 1;  // still there
  const DLPackOwner given = to_dlpack(std::move(a));
  EXPECT_FALSE(a.view());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(from_dlpack(*given).data, memory);
}

TEST(Tensor, RefusesWhatIsNoTypeOrDevice) {
  EXPECT_NE(error_of([] { Tensor(static_cast<DType>(77), {2}); }).find("type 77"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              Tensor(DType::f32, {2}, {DeviceKind::cpu, 3});
            }).find("cpu:3"),
            std::string::npos);
  EXPECT_THROW(Tensor(DType::f32, {2}, {static_cast<DeviceKind>(9), 0}), Error);
  EXPECT_THROW(Tensor(DType::f32, {-1}), Error);
  EXPECT_THROW(Tensor(DType::f32, {-1, 0}), Error);
  EXPECT_THROW(Tensor(DType::f32, {largest_index, largest_index}), Error);
  EXPECT_THROW(Tensor(DType::f32, std::vector<Index>(6, 1)), Error);
}

TEST(Device, SaysItsNumber) {
  EXPECT_EQ(to_text(Device{DeviceKind::cpu, 0}), "cpu");
  EXPECT_EQ(to_text(Device{DeviceKind::cpu, 3}), "cpu:3");
  EXPECT_EQ(to_text(Device{DeviceKind::cuda, 0}), "cuda");
  EXPECT_EQ(to_text(Device{DeviceKind::cuda, 1}), "cuda:1");
  EXPECT_EQ(to_text(Device{static_cast<DeviceKind>(9), 2}), "kind 9:2");
}

// Memory that is const is an input and no output.
static_assert(std::is_convertible_v<Tensor&, TensorView>);
static_assert(std::is_convertible_v<PinnedTensor&, TensorView>);
static_assert(!std::is_convertible_v<const Tensor&, TensorView>);
static_assert(!std::is_convertible_v<const PinnedTensor&, TensorView>);
static_assert(!std::is_convertible_v<ConstTensorView, TensorView>);
static_assert(!std::is_constructible_v<TensorView, const float*, DType, std::vector<Index>>);
static_assert(std::is_convertible_v<Tensor&, ConstTensorView>);
static_assert(std::is_convertible_v<const Tensor&, ConstTensorView>);
static_assert(std::is_convertible_v<const PinnedTensor&, ConstTensorView>);
static_assert(std::is_convertible_v<TensorView, ConstTensorView>);
static_assert(std::is_same_v<decltype(std::declval<Tensor&>().data<float>()), float*>);
static_assert(std::is_same_v<decltype(std::declval<const Tensor&>().data<float>()), const float*>);
static_assert(std::is_same_v<decltype(std::declval<const Tensor&>().view()), ConstTensorView>);

TEST(TensorView, IsAnInputToo) {
  Tensor tensor(DType::f32, {2, 3, 4});
  const TensorView output = tensor;
  const ConstTensorView input = output;
  EXPECT_EQ(input.data, tensor.data<float>());
  EXPECT_EQ(describe(input), "f32[2,3,4] on cpu, contiguous");
  EXPECT_EQ(input.channels(1, 2).data, output.channels(1, 2).data);
  EXPECT_EQ(describe(input.channels(1, 2)), "f32[2,3,2] on cpu, strides [12,4,1]");
}

TEST(TensorView, OfAPointerAndAShape) {
  const Stage stage = parse_stage("n2h3w4c5k6r1");
  std::vector<std::int32_t> written(2 * 3 * 4 * 6);
  const std::vector<std::uint8_t> read(2 * 3 * 4 * 5);
  EXPECT_EQ(describe(TensorView::of(written.data(), y_shape(stage))),
            "i32[2,3,4,6] on cpu, contiguous");
  EXPECT_EQ(describe(ConstTensorView::of(read.data(), x_shape(stage))),
            "u8[2,3,4,5] on cpu, contiguous");
  EXPECT_EQ(describe(ConstTensorView::of(written.data(), {144})), "i32[144] on cpu, contiguous");
}

TEST(TensorView, AnyRankIsSafe) {
  std::vector<float> memory(64);
  for (const int rank :
       {-1, 6, 9, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    TensorView view = TensorView::of(memory.data(), {2, 2, 2, 2});
    view.rank = rank;
    EXPECT_EQ(describe(view), "a view of rank " + std::to_string(rank) + " (expected 0 to 5)");
    EXPECT_EQ(view.elements(), 0);
    EXPECT_FALSE(view.contiguous());
    EXPECT_THROW(view.channels(0, 1), Error);
    EXPECT_THROW(copy_tensor(view, view), Error);
    EXPECT_THROW(to_dlpack(view), Error);
    EXPECT_THROW(fold_batchnorm(view, view, view, view, view, view), Error);
    const TensorView good = TensorView::of(memory.data(), {2, 2, 2, 2});
    EXPECT_THROW(fold_batchnorm(good, view, view, view, view, view), Error);
  }
}

TEST(TensorView, AnySizesAndStridesAreSafe) {
  std::vector<float> memory(64);
  const auto view_of = [&](Index shape, Index stride) {
    TensorView view = TensorView::of(memory.data(), {2, 2});
    view.shape = {shape, shape};
    view.stride = {stride, 1};
    return view;
  };
  for (const Index size : {Index{-1}, std::numeric_limits<Index>::min(), largest_index}) {
    const TensorView view = view_of(size, 2);
    EXPECT_FALSE(view.contiguous());
    EXPECT_GT(view.elements(), Index{1} << 60);
    EXPECT_THROW(copy_tensor(view, view), Error);
    EXPECT_FALSE(describe(view).empty());
  }
  for (const Index stride : {Index{-1}, std::numeric_limits<Index>::min(), largest_index, Index{0}})
    EXPECT_THROW(copy_tensor(view_of(2, stride), view_of(2, 2)), Error) << stride;
  TensorView view = view_of(8, 8);
  EXPECT_THROW(view.channels(largest_index, 1), Error);
  EXPECT_THROW(view.channels(1, largest_index), Error);
  EXPECT_THROW(view.channels(-1, 1), Error);
  view.stride[1] = largest_index;
  EXPECT_THROW(view.channels(4, 1), Error);
  view.dtype = static_cast<DType>(77);
  EXPECT_NE(describe(view).find("type 77[8,8]"), std::string::npos);
  EXPECT_THROW(copy_tensor(view, view), Error);
  EXPECT_THROW(to_dlpack(view), Error);
}

TEST(TensorView, FoldingWantsAlignedMemory) {
  std::vector<float> memory(64, 1);
  const TensorView vector = TensorView::of(memory.data(), {1});
  TensorView weights = TensorView::of(memory.data() + 8, {1, 1, 1, 2});
  weights.data = static_cast<char*>(weights.data) + 2;
  const std::string error =
      error_of([&] { fold_batchnorm(weights, vector, vector, vector, vector, vector); });
  EXPECT_NE(error.find("a multiple of 4"), std::string::npos) << error;
}

// A broadcast axis, of stride 0, is no axis that tells the distance of pixels.
TEST(TensorView, CopyRefusesAxesOfStrideZero) {
  std::vector<float> from(16, 1.0F), to(24, 0.0F);
  TensorView view = TensorView::of(from.data(), {2, 3, 4});
  view.stride = {12, 0, 1};
  EXPECT_THROW(copy_tensor(view, TensorView::of(to.data(), {2, 3, 4})), Error);
  view.stride = {0, 0, 1};
  EXPECT_THROW(copy_tensor(view, TensorView::of(to.data(), {2, 3, 4})), Error);
}

TEST(PinnedTensor, MovedFromIsEmpty) {
  PinnedTensor first(DType::f32, {2, 3}, {});
  float* const data = first.data<float>();
  PinnedTensor second = std::move(first);
  EXPECT_EQ(second.data<float>(), data);
  EXPECT_EQ(first.data<float>(), nullptr);  // NOLINT: that is what is tested
  EXPECT_FALSE(first.view());
  first = std::move(second);
  EXPECT_EQ(first.data<float>(), data);
  EXPECT_EQ(second.data<float>(), nullptr);  // NOLINT
  PinnedTensor& same = first;
  first = std::move(same);
  EXPECT_EQ(first.data<float>(), data);
}

}  // namespace
}  // namespace convoy
