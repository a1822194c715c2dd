// Plans on a GPU: the same answers as on the CPU, the same bits whatever the batch, the stream and
// the run, capture in a graph, and what a call costs the host.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "../unit/count_allocations.hpp"
#include "empty.hpp"
#include "gpu_case.hpp"
#include "plan/select.hpp"

namespace convoy {
namespace {

class GpuPlan : public GpuTest {};

void ok(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

struct CudaStream {
  cudaStream_t stream = nullptr;
  CudaStream() { ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~CudaStream() { ok(cudaStreamDestroy(stream)); }
  operator Stream() const { return {stream}; }  // NOLINT: it is one
};

struct Line {
  const char *stage, *kernel;
};
// Each with the kernel that the planner must choose, and with what it is there for; integers make
// every order of summation give the same bits.
constexpr Line lines_of_plans[] = {
    {"f16:n3h9w13c16k24r3pad1+bias+relu+max2", "halo"},
    {"bf16:n3h9w13c16k24r3pad1+bias+relu+max2", "halo"},
    {"f16:n2h12c72k136r1+leaky(0.5)", "halo"},
    {"f16:n64h4c72k136r3pad1+bias+relu", "halo"},  // images narrower than eight pixels
    {"f16:n3h9w13c16k24r3pad1+bias+if(3)+t3+max2", "halo_neuron_pass"},
    {"bf16:n2h12c72k136r1+bias+lif(2,1.5)+soft+t4+hold", "halo"},
    {"f16:n2h15c32k16r3stride2pad1+bias+relu6", "halo"},
    {"bf16:n1h11c8k8r5dil2pad4+clip(-1,3)+max2", "halo"},
    {"f16:n4h16c3k16r3pad1+bias+relu+max2", "first"},
    {"u8:n2h18w20c3k24r3pad1+bias+norm+relu+max2", "first"},
    {"f16:n2h23c3k16r7stride2pad3+bias+relu+max3s2p1", "first"},
    {"f16:n2h10c64k3r3pad1+bias+relu+max2", "few"},
    {"f16:n2h9w13c24k24r3pad1groups24+bias+relu6", "depthwise"},
    {"bf16:n2h14c40k40r5stride2pad2groups40+bias+leaky(0.5)", "depthwise"},
    {"n1h9w7c6k6r3dil2pad2groups6+clip(-1,3)+max2", "depthwise"},
    {"bf16:n2h20c21k21r3pad1groups21+bias+relu", "depthwise"},
    {"n2h14w9c64k64r3pad1groups64+bias+relu+max3s2p1", "depthwise_pool"},
    {"f16:n2h15w14c20k36r3pad1+bias+relu+max2", "halo_padded"},
    {"bf16:n3h20c72k100r1+leaky(0.5)", "window"},
    {"f16:n3h20c36k100r3pad1+bias+leaky(0.5)", "halo_padded"},
    {"f16:n2h9c20k36r3pad1+bias+relu+max3s2p1", "halo_pool_padded"},
    {"f16:n2h25c13k40r3stride2pad1nchw+bias+clip(-1,3)", "halo_padded_nchw"},
    {"n2h9w7c5k6r3pad1+bias+relu+max2", "fma"},
    {"n2h9w7c64k70r5pad2+bias+relu+max2", "window"},
    {"f16:n2h8c12k8r3pad1groups4+bias+relu+max2", "window"},
    {"bf16:n2h9c64k64r3pad1groups2+bias+relu", "window"},
    {"n2h9c36k40r3pad1groups4stride2+bias+leaky(0.5)", "fma"},
    {"f16:n2h9c64k64r3pad1groups32+bias+relu+max3s2p1", "window_pool"},
    {"f16:n2h9c64k64r3pad1groups2nchw+bias+relu", "window_nchw"},
    {"n2h10w14c64k3r3pad1+bias+relu", "few_filters"},
    {"n2h10w14c300k5r3pad1+bias+relu+max2", "few_filters_pool"},
    // What no fast family takes.
    {"n2h9w7c5k6r3pad1out(f16)+bias+relu+max2", "fma"},
    {"f16:n2h9w7c5k6r3s2pad1x2x0x1out(f32)+bias+relu", "fma"},
    {"n2h9c4k6r3stride2x1dil1x2pad2x3+leaky(-0.5)+max3s2p1", "fma_pool"},
    {"bf16:n2h9c8k16r3pad1nchw+bias+relu+max2", "halo_nchw"},
    {"f16:n2h9c8k16r3pad1+bias+relu+max2+keep(pre,act,idx)", "window_pool"},
    {"f16:n2h9c64k64r3pad1+bias+relu+max2+keep(pre,act,idx)", "halo_pool"},
    {"f16:n2h9c64k64r3pad1+bias+if(3)+t3+max3s2p1+keep(pre,act,idx)", "halo_neuron_pass"},
    {"n2h9c3k5r3pad1+max2x3s1p1d2ceil+keep(pre,act,idx)+bias+relu", "fma_pool"},
    {"f16:n2h9c8k8r3pad1nchw+keep(pre,act,idx)+bias+relu+max2", "general"},
    {"u8:n2h9c3k5r3pad1out(f32)+norm+bias+relu", "fma"},
    {"f16:n2h8c8k8r3pad1out(f32)+relu+max2", "window"},
    {"n2h8c4k6r3pad1+bias+if(3)+t3+max2", "fma_neuron_pass"},
    {"n2h8c4k6r3pad1+bias+lif(2,1.5)+soft+t4+hold+max2+keep(pre,act,idx)", "fma_neuron_pass"},
    {"f16:n2h1c40k10r1+if(2)+t2", "window_neuron_pass"},
    {"bf16:n2h8c20k24r3pad1groups2+bias+lif(2,1.5)+soft+t4+max2", "window_neuron_pass"},
    {"f16:n2h8c20k24r3pad1nchw+bias+lif(2,1.5)+soft+t4+max2", "window_neuron_pass_nchw"},
    {"u8:n2h9c3k5r3pad1nchwout(f32)+norm+bias+if(3)+t3", "fma_neuron_pass_nchw"},
    {"n1h1c3k1r1", "fma"},
};

TEST_F(GpuPlan, GivesTheBitsOfTheCpuOnIntegers) {
  for (const Line& line : lines_of_plans) {
    SCOPED_TRACE(line.stage);
    GpuCase host(parse_stage(line.stage), Values::integers, {}),
        device(parse_stage(line.stage), Values::integers, gpu0);
    const Plan cpu(host.stage, host.w, options_for({})), gpu(host.stage, host.w, options_for(gpu0));
    EXPECT_EQ(gpu.kernel(), line.kernel);
    cpu.run(host.operands()).or_throw();
    gpu.run(device.operands()).or_throw();
    EXPECT_EQ(device.outputs(), host.outputs());
    if (gpu.kernel() == "general") continue;
    const Plan general(host.stage, host.w, options_for(gpu0, "general"));
    device.poison();
    general.run(device.operands()).or_throw();
    EXPECT_EQ(device.outputs(), host.outputs()) << "general";
  }
}

constexpr Line lines_of_tiles[] = {
    {"f16:n9h17w14c72k136r3pad1+bias+relu+max2", "halo"},
    {"bf16:n9h9w30c64k64r3pad1+bias+relu", "halo"},
    {"f16:n8h14c40k64r3stride2pad1", "halo"},
    {"f16:n40h4c72k136r3pad1+bias+relu6", "halo"},
    {"f16:n9h17w14c72k264r3pad1+bias+relu+max2", "window"},
    {"bf16:n3h9w30c40k136r1+bias+relu", "window"},
    {"f16:n2h14c320k640r5stride2pad2groups2", "window"},
};

TEST_F(GpuPlan, EveryTileGivesTheSameBits) {
  for (const auto& [text, kernel] : lines_of_tiles) {
    SCOPED_TRACE(text);
    GpuCase one(parse_stage(text), Values::normal, gpu0);
    const Selection selection =
        select(one.stage, gpu::machine(0), options_for(gpu0, kernel), nullptr);
    std::vector<unsigned char> expected;
    for (const RankedTile& ranked : selection.verdict().tiles) {
      const Plan plan(one.stage, one.w, options_for(gpu0, kernel, ranked.tile.name));
      one.poison();
      plan.run(one.operands()).or_throw();
      if (expected.empty()) expected = one.outputs();
      EXPECT_EQ(one.outputs(), expected) << ranked.tile.name;
    }
  }
}

TEST_F(GpuPlan, BitsDoNotDependOnBatchPlaceStreamOrRun) {
  for (const char* text :
       {"f16:n64h14c64k64r3pad1+bias+relu+max2", "u8:n64h12c3k16r3pad1+norm+bias+relu+max2",
        "f16:n64h10c64k3r3pad1+bias+relu", "f16:n64h9c48k48r3pad1groups48+bias+relu6",
        "n64h7c5k6r3pad1+bias+relu+max2", "f16:n64h9c64k64r3pad1groups16+bias+relu+max2",
        "bf16:n64h9c21k21r3pad1groups21+bias+relu", "n64h7c40k72r3pad1+bias+relu",
        "n64h7c72k3r3pad1+bias+relu"}) {
    SCOPED_TRACE(text);
    GpuCase all(parse_stage(text), Values::normal, gpu0);
    const Plan plan(all.stage, all.w, options_for(gpu0));
    plan.run(all.operands()).or_throw();
    const std::vector<unsigned char> expected = all.outputs();
    const std::size_t image = expected.size() / 64;

    const CudaStream one, two;
    for (const CudaStream* stream : {&one, &two}) {
      ok(cudaMemset(all.y.view().data, 0xFF, all.y.bytes()));
      ok(cudaDeviceSynchronize());
      plan.run(all.operands(), *stream).or_throw();
      ok(cudaStreamSynchronize(stream->stream));
      EXPECT_EQ(all.outputs(), expected);
    }
    Stage single = all.stage;
    single.n = 1;
    const Plan alone(single, all.w, options_for(gpu0));
    EXPECT_EQ(alone.arithmetic(), plan.arithmetic());
    for (const Index at : {0, 1, 63}) {
      for (const Plan* of : {&plan, &alone}) {
        ok(cudaMemset(all.y.view().data, 0xFF, all.y.bytes()));
        Operands operands = all.operands();
        operands.x = images(all.x.view(), at, 1);
        operands.y = images(all.y.view(), 0, 1);
        of->run(operands).or_throw();
        const std::vector<unsigned char> bytes = all.outputs();
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(image),
                               expected.begin() + at * static_cast<std::ptrdiff_t>(image)))
            << "image " << at;
      }
    }
  }
}

TEST_F(GpuPlan, WritesSlicesOfAConcatenation) {
  const Stage stage = parse_stage("f16:n2h8c16k16r3pad1+bias+relu");
  GpuCase one(stage, Values::integers, gpu0);
  for (const char* kernel : {"halo", "general"}) {
    const Plan plan(stage, one.w, options_for(gpu0, kernel));
    one.poison();
    plan.run(one.operands()).or_throw();
    Tensor wide(DType::f16, {2, 8, 8, 48}, gpu0);
    copy_tensor(one.x, wide.view().channels(8, 16));
    Operands operands = one.operands();
    operands.x = wide.view().channels(8, 16);
    operands.y = wide.view().channels(32, 16);
    plan.run(operands).or_throw();
    Tensor slice(DType::f16, {2, 8, 8, 16});
    copy_tensor(operands.y, slice);
    const Tensor dense = one.y.to({});
    EXPECT_EQ(std::memcmp(slice.view().data, dense.view().data, dense.bytes()), 0) << kernel;
  }
}

TEST_F(GpuPlan, IsCapturedInAGraphAndReplayed) {
  for (const char* text :
       {"f16:n4h14c64k64r3pad1+bias+relu+max2", "f16:n2h10c64k3r3pad1+bias",
        "f16:n4h16c3k16r3pad1+bias+relu+max2", "f16:n4h9c48k48r3pad1groups48+bias+relu6",
        "n2h7c5k6r3pad1+bias+relu+max2", "n4h10c72k3r3pad1+bias+relu"}) {
    SCOPED_TRACE(text);
    GpuCase one(parse_stage(text), Values::normal, gpu0);
    const Plan plan(one.stage, one.w, options_for(gpu0));
    const CudaStream stream;
    cudaGraph_t graph = nullptr;
    // The plan's first run of all is the captured one: nothing may be left to be done lazily.
    ok(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 3; ++i) plan.run(one.operands(), stream).or_throw();
    ok(cudaStreamEndCapture(stream.stream, &graph));
    cudaGraphExec_t ready = nullptr;
    ok(cudaGraphInstantiate(&ready, graph, 0));
    ok(cudaMemset(one.y.view().data, 0xFF, one.y.bytes()));
    ok(cudaDeviceSynchronize());
    ok(cudaGraphLaunch(ready, stream.stream));
    ok(cudaStreamSynchronize(stream.stream));
    const std::vector<unsigned char> replayed = one.outputs();
    one.poison();
    plan.run(one.operands()).or_throw();
    EXPECT_EQ(replayed, one.outputs());
    ok(cudaGraphExecDestroy(ready));
    ok(cudaGraphDestroy(graph));
  }
}

/// Median microseconds that a call keeps the host, of many batches, each so small that the queue to
/// the GPU does not fill up, which would time the GPU. Beside it, in turns, a launch of an empty
/// kernel: what a launch costs differs from machine to machine, and falls while a CPU wakes up.
struct HostTime {
  double call, bare;
};
template <class Call>
HostTime host_microseconds(const Call& call) {
  const auto batch = [](const auto& what) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    for (int i = 0; i < 50; ++i) what();
    const double us = std::chrono::duration<double>(Clock::now() - begin).count() * 1e6 / 50;
    static_cast<void>(cudaDeviceSynchronize());
    return us;
  };
  std::array<double, 201> calls{}, bares{};
  for (int i = 0; i < 200; ++i) batch(call);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i] = batch(call);
    bares[i] = batch(launch_nothing);
  }
  const auto median = [](auto& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  return {median(calls), median(bares)};
}

// Launches go to the driver, which knows no device in a thread where nobody has chosen one.
TEST_F(GpuPlan, RunsFromManyThreadsThatCudaHasNotSeen) {
  for (const char* text :
       {"f16:n4h14c64k64r3pad1+bias+relu+max2", "f16:n2h10c64k3r3pad1+bias",
        "f16:n4h16c3k16r3pad1+bias+relu+max2", "n2h7c5k6r3pad1+bias+relu+max2"}) {
    SCOPED_TRACE(text);
    GpuCase one(parse_stage(text), Values::normal, gpu0);
    const Plan plan(one.stage, one.w, options_for(gpu0));
    plan.run(one.operands()).or_throw();
    const std::vector<unsigned char> expected = one.outputs();
    std::vector<Tensor> outputs;
    for (int i = 0; i < 4; ++i) outputs.emplace_back(one.y.view().dtype, y_shape(one.stage), gpu0);
    std::vector<std::thread> threads;
    for (Tensor& y : outputs)
      threads.emplace_back([&] {
        Operands operands = one.operands();
        operands.y = y;
        for (int run = 0; run < 20; ++run) EXPECT_EQ(plan.run(operands).message(), "");
      });
    for (std::thread& thread : threads) thread.join();
    for (const Tensor& y : outputs) {
      copy_tensor(y, one.y);
      EXPECT_EQ(one.outputs(), expected);
    }
  }
}

// Three microseconds, or where even that is too little for a launch (the driver and the CPU decide)
// half a microsecond more than the runtime's launch of an empty kernel.
TEST_F(GpuPlan, RunNeitherAllocatesNorTakesTheHostLong) {
  for (const char* text : {"f16:n1h14c64k64r3pad1+bias+relu+max2", "f16:n1h10c64k3r3pad1+bias",
                           "f16:n1h16c3k16r3pad1+bias+relu+max2", "f16:n1h7c48k48r3pad1groups48",
                           "n1h3c5k6r3pad1+bias+relu", "n1h10c64k3r3pad1+bias"}) {
    SCOPED_TRACE(text);
    GpuCase one(parse_stage(text), Values::normal, gpu0);
    const Plan plan(one.stage, one.w, options_for(gpu0));
    const Operands operands = one.operands();
    plan.run(operands).or_throw();
    ok(cudaDeviceSynchronize());
    const auto kept = memory_kept_by([&] {
      // Of this thread: threads of the driver allocate when they like. The stream may not be full
      // either: with other processes on the GPU the driver would make room for more launches.
      for (int i = 0; i < 100; ++i) {
        const long before_run = allocations_of_this_thread();
        static_cast<void>(plan.run(operands));
        EXPECT_EQ(allocations_of_this_thread(), before_run)
            << "run " << i << ", the last one by " << last_allocation_of_this_thread();
        if (i % 10 == 9) ok(cudaDeviceSynchronize());
      }
      ok(cudaDeviceSynchronize());
    });
    EXPECT_EQ(kept, 0);
    const auto [all, bare] = host_microseconds([&] { static_cast<void>(plan.run(operands)); });
    std::printf("%s: plan.run takes the host %.2f us, a launch of an empty kernel %.2f us\n",
                plan.kernel().c_str(), all, bare);
    EXPECT_LE(all, std::max(3.0, bare + 0.5));
  }
}

TEST_F(GpuPlan, IsMadeInAMillisecond) {
  using Clock = std::chrono::steady_clock;
  // What a process does once: the context, and the facts of the device.
  { const Plan warm(parse_stage("f16:n1h4c8k8r3"), options_for(gpu0)); }
  for (const char* text :
       {"f16:n32h56c64k128r3pad1+bias+relu+max2", "f16:n32h28c512k512r3pad1+bias+relu",
        "bf16:n8h14c96k64r5pad2+relu", "f16:n32h224c3k64r7stride2pad3+bias+relu+max3s2p1"}) {
    // The first plan of a kernel also loads its code; the least of some is what others did not
    // disturb.
    double first = 0, least = 0;
    for (int i = 0; i < 5; ++i) {
      const auto begin = Clock::now();
      const Plan plan(parse_stage(text), options_for(gpu0));
      const double ms = std::chrono::duration<double>(Clock::now() - begin).count() * 1e3;
      if (i == 0) first = ms;
      least = i == 0 ? ms : std::min(least, ms);
    }
    std::printf("%s: made in %.3f ms, the first time in %.3f\n", text, least, first);
    EXPECT_LE(least, 1.0) << text;
  }
}

}  // namespace
}  // namespace convoy
