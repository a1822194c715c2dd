// tests/cuda/KERNEL-stages.txt: the awkward stages of each GPU kernel that runs one stage, which
// ctest runs by it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/fit/h200.hpp"
#include "cuda/device.hpp"
#include "plan/kernel_table.hpp"

namespace convoy {
namespace {

TEST(StageLists, EveryKernelHasOneOfStagesThatItTakes) {
  const Machine machine = cuda::machine_of(cuda::h200());
  int lists = 0;
  for (const Kernel* kernel : kernel_table()) {
    const auto* runs_one = dynamic_cast<const StageKernel*>(kernel);
    if (kernel->device() != DeviceKind::cuda || runs_one == nullptr) continue;
    SCOPED_TRACE(kernel->name());
    const std::string file =
        std::string(CONVOY_SOURCE_DIR "/tests/cuda/") + std::string(kernel->name()) + "-stages.txt";
    ASSERT_TRUE(std::filesystem::exists(file)) << "make a list " << file;
    const std::vector<Stage> stages = read_shape_list(file);
    EXPECT_GE(stages.size(), 6U);
    for (const Stage& stage : stages)
      EXPECT_EQ(runs_one->refusals(stage, machine), std::vector<std::string>{}) << to_text(stage);
    ++lists;
  }
  EXPECT_GE(lists, 11);
}

}  // namespace
}  // namespace convoy
