// What bench, verify and explain stand on: streams of their own, replays, the clock, times.
#include "plan/timing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "convoy/tune.hpp"
#include "core/gpu.hpp"
#include "core/gpu_timing.hpp"
#include "gpu_case.hpp"
#include "plan/chain_runs.hpp"
#include "plan/segments.hpp"

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
    Tensor fresh(DType::u8, {large}, gpu0);
    TensorView end(fresh.data<char>() + (large - bytes), DType::u8, {bytes}, gpu0);
    copy_tensor(ones, end, own.stream());
    gpu::synchronize(gpu0, {});
    copy_tensor(end, back, own.stream());
    ASSERT_EQ(std::memcmp(back.data<char>(), ones.data<char>(), static_cast<std::size_t>(bytes)), 0)
        << "tensor " << i;
  }
}

TEST_F(GpuTiming, AGraphDoesItsWorkAtEachReplay) {
  Tensor host(DType::f32, {4});
  std::fill_n(host.data<float>(), 4, 3.0F);
  Tensor from = host.to(gpu0), to(DType::f32, {4}, gpu0);
  gpu::Graph graph(gpu0, [&](Stream stream) { copy_tensor(from, to, stream); });
  copy_tensor(to, host);
  EXPECT_EQ(host.data<float>()[3], 0);  // captured, not run
  EXPECT_GT(graph.replay(2), 0);
  copy_tensor(to, host);
  EXPECT_EQ(host.data<float>()[3], 3);
}

TEST_F(GpuTiming, TheClockIsThatOfAGpu) {
  Tensor from(DType::u8, {1 << 20}, gpu0), to(DType::u8, {1 << 20}, gpu0);
  gpu::Graph graph(gpu0, [&](Stream stream) { copy_tensor(from, to, stream); });
  const double clock = graph.clock_hz();
  EXPECT_GT(clock, 0.1e9);
  EXPECT_LT(clock, 4e9);
}

TEST_F(GpuTiming, WhatFailsWhileItIsCapturedIsThrown) {
  EXPECT_THROW(gpu::Graph(gpu0, [](Stream) { throw Error("no"); }), Error);
  Tensor from(DType::u8, {256}, gpu0), to(DType::u8, {256}, gpu0);
  gpu::Graph graph(gpu0, [&](Stream stream) { copy_tensor(from, to, stream); });
  EXPECT_GT(graph.replay(1), 0);
}

TEST_F(GpuTiming, WhatIsRunWithoutAGraphIsRunOnce) {
  Tensor host(DType::f32, {4});
  std::fill_n(host.data<float>(), 4, 3.0F);
  Tensor from = host.to(gpu0), to(DType::f32, {4}, gpu0);
  gpu::Graph graph(gpu0);
  EXPECT_GT(graph.run([&](Stream stream) { copy_tensor(from, to, stream); }), 0);
  copy_tensor(to, host);
  EXPECT_EQ(host.data<float>()[3], 3);
}

// 96 launches of this stage take longer than ten seconds.
TEST_F(GpuTiming, SlowStagesKeepToTheirTime) {
  const Stage stage = parse_stage("f16:n1000h28w28c64k64r3pad1+bias+lif(2,1)+t4+max2");
  RandomOperands random(stage, 1, gpu::machine(0));
  PlanOptions options;
  options.device = gpu0;
  options.kernel = "general";
  const Plan plan(stage, random.weights, options);
  const auto begin = std::chrono::steady_clock::now();
  const Timing timing = time_runs(plan, random, 0.1);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(spent.count(), 0.5 + 8 * timing.median);
}

// Each time on a stream of its own; a plan's workspaces are kept by the first streams.
TEST_F(GpuTiming, PlansWithAWorkspaceAreTimedAgain) {
  const OwnedChain chain = parse_chain("n2h28c64k64r3pad1+relu > n2h28c64k80r3pad1+relu", true);
  const Stage& stage = chain.stages.front();
  const Machine machine = gpu::machine(0);
  if (machine.compute_capability < 80) GTEST_SKIP() << "skipped: needs compute capability 8.0";
  RandomOperands random(stage, 1, machine);
  PlanOptions options;
  options.device = gpu0;
  options.kernel = "winograd4";
  const Plan plan(stage, random.weights, options);
  ASSERT_GT(plan.workspace_bytes(), 0U);
  for (int i = 0; i < 3; ++i) EXPECT_GT(time_runs(plan, random, 0.01).median, 0);
  EXPECT_FALSE(tune(stage, options, 0.05, false).rows.empty());
  ChainRuns runs(chain, {.device = gpu0});
  for (int i = 0; i < 3; ++i) EXPECT_GT(summary(runs.sample_stages(0.01)).median, 0);
}

TEST_F(GpuTiming, TwoStagesAreTimedInOneLaunchAndInTwo) {
  const OwnedChain chain = parse_chain(
      "f16:n4h32c64k128r3pad1+bias+relu+max2 > f16:n4h16c128k256r1+bias+relu+max2", true);
  const Machine machine = gpu::machine(0);
  if (machine.compute_capability != 90) GTEST_SKIP() << "skipped: needs compute capability 9.0";
  PlanOptions options;
  options.device = gpu0;
  const SegmentTimes times = measure_segments(chain, options, 0.01);
  for (const double seconds : {times.one_kernel, times.by_themselves}) {
    EXPECT_GT(seconds, 1e-6);
    EXPECT_LT(seconds, 1e-3);
  }
}

}  // namespace
}  // namespace convoy
