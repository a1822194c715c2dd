// The teaching kernels are in the table of programs that add them, and run by name only.
#include <gtest/gtest.h>

#include "bench/fit/h200.hpp"
#include "convoy/error.hpp"
#include "cuda/device.hpp"
#include "plan/select.hpp"
#include "teaching/add_kernels.hpp"
#include "teaching/families.hpp"

namespace convoy {
namespace {

TEST(Teaching, ItsKernelsAreInTheTableByTheirNames) {
  int found = 0;
  for (const Kernel* kernel : kernel_table()) {
    SCOPED_TRACE(kernel->name());
    EXPECT_EQ(kernel->facts().by_name_only, is_teaching_kernel(kernel->name()));
    found += is_teaching_kernel(kernel->name());
  }
  EXPECT_EQ(found, 13);
  EXPECT_EQ(find_kernel("ladder_3_shared", DeviceKind::cuda), &cuda::teaching::ladder(3));
  EXPECT_EQ(find_kernel("cutlass_pooled", DeviceKind::cuda), &cuda::teaching::cutlass_pooled());
}

TEST(Teaching, AddingThemAgainIsAnError) {
  const std::size_t before = kernel_table().size();
  EXPECT_THROW(teaching::add_kernels(), Error);
  EXPECT_EQ(kernel_table().size(), before);
}

TEST(Teaching, ARungIsChosenByNameOnly) {
  const Stage stage = parse_stage("f16:n2h16c64k128r3pad1+bias+relu");
  const Machine machine = cuda::machine_of(cuda::h200());
  PlanOptions options{.device = {DeviceKind::cuda, 0}, .kernel = "ladder_3_shared"};
  EXPECT_EQ(select(stage, machine, options, nullptr).kernel().name(), "ladder_3_shared");
  options.kernel.clear();
  EXPECT_EQ(select(stage, machine, options, nullptr).kernel().name(), "halo");
  options.kernel = "ladder_12";
  try {
    select(stage, machine, options, nullptr);
    ADD_FAILURE() << "there is no rung 12";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ladder_9_bounds"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace convoy
