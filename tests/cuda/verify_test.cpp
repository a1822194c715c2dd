// `convoy verify` on a GPU where a kernel has workspace.
#include "verify/verify.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>

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

// The message names the operand, what was found, what was expected and what to do.
TEST_F(GpuVerify, ASecondStreamWithoutWorkspaceIsRefused) {
  const GpuCase one(parse_stage("f16:n2h9c8k16r3pad1+bias+relu+max3s2p1"), Values::normal, gpu0);
  const Plan plan(one.stage, one.w, options_for(gpu0, "halo_pool"));
  const gpu::OwnedStream first(gpu0), second(gpu0);
  plan.run(one.operands(), first.stream()).or_throw();
  plan.run(one.operands(), first.stream()).or_throw();
  const Status status = plan.run(one.operands(), second.stream());
  EXPECT_EQ(status.message().rfind("workspace: found none free, of the plan's 1 ", 0), 0U)
      << status.message();
  EXPECT_EQ(status.code(), StatusCode::no_workspace);
}

TEST_F(GpuVerify, CudaStreamPerThreadNeedsAWorkspaceOfTheCallers) {
  const GpuCase one(parse_stage("f16:n2h9c8k16r3pad1+bias+relu+max3s2p1"), Values::normal, gpu0);
  const Plan plan(one.stage, one.w, options_for(gpu0, "halo_pool"));
  const Stream per_thread{cudaStreamPerThread};
  Operands operands = one.operands();
  const Status status = plan.run(operands, per_thread);
  EXPECT_EQ(status.code(), StatusCode::no_workspace);
  EXPECT_NE(status.message().find("cudaStreamPerThread"), std::string::npos) << status.message();
  const Tensor workspace(DType::u8, {static_cast<Index>(plan.workspace_bytes())}, gpu0);
  operands.workspace = workspace.data<void>();
  plan.run(operands, per_thread).or_throw();
  gpu::synchronize(gpu0, per_thread);
}

// The graph has the workspace of the stream that it was captured on, and uses it on any other.
TEST_F(GpuVerify, AGraphRunsOnAnotherStreamWhileTheFirstRests) {
  const GpuCase one(parse_stage("f16:n2h9c8k16r3pad1+bias+relu+max3s2p1"), Values::normal, gpu0);
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
