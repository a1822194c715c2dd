// `convoy verify` on a GPU where a kernel has workspace.
#include "verify/verify.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/gpu_timing.hpp"
#include "gpu_case.hpp"

namespace convoy {
namespace {

class GpuVerify : public GpuTest {};

// On two streams, each of which wants one; and on views with gaps between the images.
TEST_F(GpuVerify, PassesWhereAKernelHasWorkspace) {
  const struct {
    const char *kernel, *stage;
  } cases[] = {{"halo_pool", "f16:n2h9c8k16r3pad1+bias+relu+max3s2p1"},
               {"halo_neuron_pass", "f16:n2h9c8k16r3pad1+bias+if(1)+t3+max3s2p1"},
               {"halo_nchw", "f16:n2h9c8k16r3pad1nchw+bias+relu+max2"},
               {"first_nchw", "f16:n2h9c3k16r3pad1nchw+bias+relu+max2"},
               {"few_nchw", "f16:n2h10c64k3r3pad1nchw+bias+relu"},
               {"few_nchw", "f16:n2h8c48k1r3pad1nchw+bias+max2"}};
  for (const auto& [kernel, stage] : cases) {
    SCOPED_TRACE(kernel);
    EXPECT_GT(Plan(parse_stage(stage), options_for(gpu0, kernel)).workspace_bytes(), 0U);
    verify::VerifyOptions options;
    options.device = gpu0;
    options.stages = {parse_stage(stage)};
    options.kernel = kernel;
    const verify::Report report = verify::verify(options);
    EXPECT_GT(report.checks, 0);
    for (const verify::Failure& failure : report.failures) ADD_FAILURE() << failure.what;
  }
}

// Streams that come and go, so that handles come again, eight at work at a time, and the thread's
// own: every run is right, with workspaces of the plan's own. A stream is destroyed when its work
// is over (docs/trust/guarantees.md says why).
TEST_F(GpuVerify, EveryStreamHasAWorkspace) {
  GpuCase one(parse_stage("f16:n64h56c64k64r3pad1+bias+relu+max3s2p1"), Values::normal, gpu0);
  const Plan plan(one.stage, one.w, options_for(gpu0, "halo_pool"));
  ASSERT_GT(plan.workspace_bytes(), 0U);
  plan.run(one.operands()).or_throw();
  gpu::synchronize(gpu0, {});
  const Tensor expected = one.y.to({});
  std::vector<Tensor> outputs;
  for (int i = 0; i < 8; ++i) outputs.push_back(one.y.clone());
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<gpu::OwnedStream>> streams;
    for (Tensor& y : outputs) {
      streams.push_back(std::make_unique<gpu::OwnedStream>(gpu0));
      Operands operands = one.operands();
      operands.y = y;
      plan.run(operands, streams.back()->stream()).or_throw();
    }
    Operands operands = one.operands();
    plan.run(operands, Stream{cudaStreamPerThread}).or_throw();
    gpu::synchronize(gpu0, Stream{cudaStreamPerThread});
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (const Tensor& y : outputs)
      ASSERT_EQ(std::memcmp(y.to({}).view().data, expected.view().data, expected.bytes()), 0)
          << "round " << round;
  }
}

// PyTorch captures in the global mode, in which another thread's allocation spoils the capture.
TEST_F(GpuVerify, PackingAndPlanningBesideACaptureSpoilNothing) {
  GpuCase one(parse_stage("f16:n2h9c8k16r3pad1+bias+relu+max3s2p1"), Values::normal, gpu0);
  const Plan plan(one.stage, one.w, options_for(gpu0, "halo_pool"));
  const gpu::OwnedStream stream(gpu0);
  const auto handle = static_cast<cudaStream_t>(stream.stream().handle);
  ASSERT_EQ(cudaStreamBeginCapture(handle, cudaStreamCaptureModeGlobal), cudaSuccess);
  const Status captured = plan.run(one.operands(), stream.stream());
  std::string wrong;
  std::thread([&] {
    try {
      Plan another(one.stage, options_for(gpu0, "halo_pool"));
      another.set_weights(one.w, Stream{cudaStreamPerThread});
    } catch (const Error& error) {
      wrong = error.what();
    }
  }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(handle, &graph), cudaSuccess);
  EXPECT_TRUE(captured.ok()) << captured.message();
  EXPECT_EQ(wrong, "");
  if (graph) cudaGraphDestroy(graph);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// The graph has the workspace of the stream that it was captured on, and uses it on any other.
TEST_F(GpuVerify, AGraphRunsOnAnotherStreamWhileTheFirstRests) {
  GpuCase one(parse_stage("f16:n2h9c8k16r3pad1+bias+relu+max3s2p1"), Values::normal, gpu0);
  const Plan plan(one.stage, one.w, options_for(gpu0, "halo_pool"));
  plan.run(one.operands()).or_throw();
  const Tensor want = one.y.to(Device{});
  copy_tensor(Tensor(one.y.view().dtype, y_shape(one.stage), gpu0), one.y);
  const gpu::OwnedStream first(gpu0), other(gpu0);
  const Plan again(one.stage, one.w, options_for(gpu0, "halo_pool"));
  auto* const captured = static_cast<cudaStream_t>(first.stream().handle);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  again.run(one.operands(), first.stream()).or_throw();
  ASSERT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(ready, static_cast<cudaStream_t>(other.stream().handle)), cudaSuccess);
  gpu::synchronize(gpu0, other.stream());
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  const Tensor got = one.y.to(Device{});
  EXPECT_EQ(std::memcmp(got.data<void>(), want.data<void>(), got.bytes()), 0);
}

}  // namespace
}  // namespace convoy
