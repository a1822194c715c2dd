// Plans, tensors and copies on a GPU in the hands of a caller who does what they should not: each
// is refused with the reason, and the GPU goes on.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/gpu_timing.hpp"
#include "gpu_case.hpp"

namespace convoy {
namespace {

constexpr Index largest_index = std::numeric_limits<Index>::max();

class GpuHostile : public GpuTest {
 protected:
  // No launch went wrong meanwhile, nor is one's error left behind for the next.
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
};

// A stage of each family, and of what lies around them.
constexpr const char* stages[] = {
    "f16:n2h8c16k16r3pad1+bias+relu+max2", "f16:n2h8c3k16r3pad1+bias+relu+max2",
    "f16:n2h8c64k3r3pad1+bias+relu",       "f16:n2h8c16k16r3pad1groups16+bias",
    "f16:n2h8c12k20r3pad1+bias+relu",      "f16:n2h8c16k16r3pad1nchw+bias+relu",
    "f16:n2h8c16k16r3pad1+bias+max3s2p1",  "n2h8c5k6r3pad1+bias+if(1)+t2",
};

TEST_F(GpuHostile, OperandsOfAnyContentAreRefused) {
  for (const char* text : stages) {
    SCOPED_TRACE(text);
    GpuCase one(parse_stage(text), Values::integers, gpu0);
    const Plan plan(one.stage, one.w, options_for(gpu0));
    const Operands good = one.operands();
    plan.run(good).or_throw();
    const auto expected = one.outputs();
    const auto check = [&](auto Operands::*field) {
      const auto refused = [&](const char* what, const auto& spoil) {
        Operands operands = good;
        spoil(operands.*field);
        EXPECT_FALSE(plan.run(operands).ok()) << what;
      };
      for (const int rank : {-1, 0, 1000, 6, std::numeric_limits<int>::max()})
        refused("rank", [&](auto& view) { view.rank = rank; });
      refused("type", [](auto& view) { view.dtype = static_cast<DType>(77); });
      refused("null", [](auto& view) { view.data = nullptr; });
      refused("address", [](auto& view) {
        view.data = const_cast<char*>(static_cast<const char*>(view.data)) + 1;
      });
      for (const int index : {-1, 1, 7, 99})
        refused("device", [&](auto& view) { view.device.index = index; });
      refused("the host", [](auto& view) { view.device = {}; });
      for (const Index size :
           {Index{-1}, Index{0}, std::numeric_limits<Index>::min(), largest_index})
        refused("size", [&](auto& view) { view.shape[0] = size; });
      for (const Index stride : {Index{-1}, Index{1} << 59, largest_index, largest_index / 2})
        refused("stride", [&](auto& view) { view.stride.fill(stride); });
    };
    check(&Operands::x), check(&Operands::bias), check(&Operands::y);
    Operands operands = good;
    operands.y = one.x;
    EXPECT_FALSE(plan.run(operands).ok()) << "y over x";
    one.poison();
    plan.run(good).or_throw();
    EXPECT_EQ(one.outputs(), expected);
  }
}

TEST_F(GpuHostile, WorkspacesMustBeAligned) {
  GpuCase one(parse_stage("f16:n2h9c8k16r3pad1+bias+relu+max3s2p1"), Values::integers, gpu0);
  const Plan plan(one.stage, one.w, options_for(gpu0));
  ASSERT_GT(plan.workspace_bytes(), 0U);
  Tensor memory(DType::u8, {static_cast<Index>(plan.workspace_bytes()) + 256}, gpu0);
  Operands operands = one.operands();
  operands.workspace = memory.data<char>() + 64;
  EXPECT_NE(plan.run(operands).message().find("a multiple of 256"), std::string::npos);
  operands.workspace = memory.data<char>();
  plan.run(operands).or_throw();
}

TEST_F(GpuHostile, WhatWasMovedFromSaysSo) {
  GpuCase one(parse_stage(stages[0]), Values::integers, gpu0);
  Plan plan(one.stage, one.w, options_for(gpu0));
  const Plan there = std::move(plan);
  EXPECT_FALSE(plan.run(one.operands()).ok());  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(plan.set_weights(one.w), Error);
  there.run(one.operands()).or_throw();
  Tensor tensor(DType::f16, {4}, gpu0);
  Tensor taken = std::move(tensor);
  EXPECT_FALSE(tensor.view());  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(copy_tensor(tensor, taken), Error);
}

TEST_F(GpuHostile, AbsurdSizesAreNoMemory) {
  for (const std::vector<Index>& shape :
       {std::vector<Index>{Index{1} << 58},
        {Index{1} << 60},
        {largest_index},
        {1 << 30, 1 << 30, 4},
        {-1},
        {largest_index, largest_index, largest_index, largest_index, largest_index}})
    EXPECT_THROW(Tensor(DType::f32, shape, gpu0), Error);
  EXPECT_THROW(gpu::allocate(gpu0, std::size_t{1} << 62, "a test"), Error);
  EXPECT_THROW(gpu::allocate(gpu0, std::numeric_limits<std::size_t>::max(), "a test"), Error);
  // Weights and workspaces of a legal stage that no GPU holds.
  for (const char* text : {"n1h1c1000000k1000000r1", "f16:n800h400c8k1024r3pad1+max3s1p1",
                           "f16:n1h1c33554432k33554432r1"})
    EXPECT_THROW(Plan(parse_stage(text), options_for(gpu0)), Error) << text;
}

TEST_F(GpuHostile, DevicesThatAreNotThereAreNamed) {
  for (const int index :
       {-1, 99, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    const Device none{DeviceKind::cuda, index};
    EXPECT_THROW(Plan(parse_stage(stages[0]), options_for(none)), Error);
    EXPECT_THROW(Tensor(DType::f32, {4}, none), Error);
    EXPECT_THROW(gpu::synchronize(none, {}), Error);
    EXPECT_THROW(gpu::OwnedStream{none}, Error);
    EXPECT_THROW(static_cast<void>(gpu::time(none, {}, [] {})), Error);
    Tensor here(DType::f32, {4}, gpu0), host(DType::f32, {4});
    TensorView there = here;
    there.device = none;
    EXPECT_THROW(copy_tensor(there, here), Error);
    EXPECT_THROW(copy_tensor(here, there), Error);
    EXPECT_THROW(copy_tensor(there, host), Error);
    EXPECT_THROW(static_cast<void>(here.to(none)), Error);
  }
}

// What CUDA itself refuses comes back as an Error: rows closer to each other than they are long.
TEST_F(GpuHostile, CopiesOfImpossibleRowsAreRefused) {
  Tensor from(DType::u8, {256}, gpu0), to(DType::u8, {256}, gpu0);
  gpu::CopyRows rows{.from = from.view().data,
                     .to = to.view().data,
                     .from_device = gpu0,
                     .to_device = gpu0,
                     .row_bytes = 16,
                     .rows = 4,
                     .from_pitch = 8,
                     .to_pitch = 16};
  EXPECT_THROW(gpu::copy(rows, {}), Error);
  rows.from_pitch = std::size_t{1} << 40;
  EXPECT_THROW(gpu::copy(rows, {}), Error);
}

// Absurd and legal, with few elements: planned, run, and the same as on the CPU.
TEST_F(GpuHostile, AbsurdStagesRun) {
  for (const char* text :
       {"n1h8c4k8r3pad1194543402stride672590751+max2", "n1h4c1k3r1+max1d2147483647",
        "f16:n1h40000w8c8k8r2s1dil35000x1", "f16:n1h1c8k70000r1+bias", "f16:n1h1c131072k1r1",
        "f16:n1h2w3c8k70000r1nchw", "bf16:n1h3c8k8r3pad1stride2147483647groups8"}) {
    SCOPED_TRACE(text);
    GpuCase host(parse_stage(text), Values::integers, {}),
        device(parse_stage(text), Values::integers, gpu0);
    Plan(host.stage, host.w, options_for({})).run(host.operands()).or_throw();
    for (const char* kernel : {"", "general"}) {
      Plan(host.stage, host.w, options_for(gpu0, kernel)).run(device.operands()).or_throw();
      EXPECT_EQ(device.outputs(), host.outputs()) << kernel;
    }
  }
}

}  // namespace
}  // namespace convoy
