// `convoy verify` on a GPU where a kernel has workspace.
#include "verify/verify.hpp"

#include <gtest/gtest.h>

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
}

}  // namespace
}  // namespace convoy
