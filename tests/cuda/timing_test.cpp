// What bench, verify and explain stand on: streams of their own, replays, the clock, times.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/gpu.hpp"
#include "core/gpu_timing.hpp"
#include "gpu_case.hpp"
#include "plan/fusion.hpp"

namespace convoy {
namespace {

class GpuTiming : public GpuTest {};

// A stream of one's own does not wait for what clears a new tensor.
TEST_F(GpuTiming, AFreshTensorIsClearBeforeAnyStreamWritesIt) {
  constexpr Index bytes = Index{1} << 16, large = Index{1} << 28;
  Tensor ones(DType::u8, {bytes}), back(DType::u8, {bytes});
  std::memset(ones.data<char>(), 1, static_cast<std::size_t>(bytes));
  const gpu::OwnedStream own(gpu0);
  for (int i = 0; i < 20; ++i) {
    const Tensor fresh(DType::u8, {large}, gpu0);
    TensorView end(fresh.data<char>() + (large - bytes), DType::u8, {bytes}, gpu0);
    copy(ones, end, own.stream());
    gpu::synchronize(gpu0, {});
    copy(end, back, own.stream());
    ASSERT_EQ(std::memcmp(back.data<char>(), ones.data<char>(), static_cast<std::size_t>(bytes)), 0)
        << "tensor " << i;
  }
}

TEST_F(GpuTiming, AGraphDoesItsWorkAtEachReplay) {
  Tensor host(DType::f32, {4});
  std::fill_n(host.data<float>(), 4, 3.0F);
  const Tensor from = host.to(gpu0), to(DType::f32, {4}, gpu0);
  gpu::Graph graph(gpu0, [&](Stream stream) { copy(from, to, stream); });
  copy(to, host);
  EXPECT_EQ(host.data<float>()[3], 0);  // captured, not run
  EXPECT_GT(graph.replay(2), 0);
  copy(to, host);
  EXPECT_EQ(host.data<float>()[3], 3);
}

TEST_F(GpuTiming, TheClockIsThatOfAGpu) {
  const Tensor from(DType::u8, {1 << 20}, gpu0), to(DType::u8, {1 << 20}, gpu0);
  gpu::Graph graph(gpu0, [&](Stream stream) { copy(from, to, stream); });
  const double clock = graph.clock_hz();
  EXPECT_GT(clock, 0.1e9);
  EXPECT_LT(clock, 4e9);
}

TEST_F(GpuTiming, WhatFailsWhileItIsCapturedIsThrown) {
  EXPECT_THROW(gpu::Graph(gpu0, [](Stream) { throw Error("no"); }), Error);
  const Tensor from(DType::u8, {256}, gpu0), to(DType::u8, {256}, gpu0);
  gpu::Graph graph(gpu0, [&](Stream stream) { copy(from, to, stream); });
  EXPECT_GT(graph.replay(1), 0);
}

TEST_F(GpuTiming, TwoStagesAreTimedInOneLaunchAndInTwo) {
  const Stage first = parse_stage("f16:n4h32c64k128r3pad1+bias+relu+max2"),
              second = parse_stage("f16:n4h16c128k256r1+bias+relu+max2");
  const Machine machine = gpu::machine(0);
  const Fusion fusion = judge_fusion(first, second, machine);
  if (machine.compute_capability != 90) GTEST_SKIP() << "skipped: " << fusion.why;
  ASSERT_TRUE(fusion.possible) << fusion.why;
  const FusionTimes times = measure_fusion(first, second, machine, 0.01);
  for (const double seconds : {times.one_launch, times.two_launches}) {
    EXPECT_GT(seconds, 1e-6);
    EXPECT_LT(seconds, 1e-3);
  }
}

}  // namespace
}  // namespace convoy
