// Every GPU kernel against the oracle on drawn stages, as tests/parity does it for the CPU's: more
// are drawn until each tile, epilogue, tail case and pair of awkward fields has been met five
// times. NaN and infinities at every position are among the draws.
#include <gtest/gtest.h>

#include <set>

#include "gpu_case.hpp"
#include "plan/kernel_table.hpp"
#include "teaching/cutlass_pooled/cutlass_pooled.hpp"
#include "teaching/families.hpp"
#include "verify/verify.hpp"

namespace convoy::verify {
namespace {

class GpuParity : public GpuTest {};

TEST_F(GpuParity, DrawnStages) {
  VerifyOptions options;
  options.device = gpu0;
  options.random = 1000;
  const Report report = verify(options);
  for (const Failure& failure : report.failures)
    ADD_FAILURE() << failure.what << "\nrepro: " << failure.repro;
  for (const Cell& cell : report.gaps())
    ADD_FAILURE() << "not covered: " << cell.kernel << " " << cell.tile << ", " << cell.epilogue
                  << ", " << cell.tail;
  for (const std::string& gap : report.field_gaps()) ADD_FAILURE() << "not covered: " << gap;
  std::set<std::string, std::less<>> met;
  for (const auto& [cell, count] : report.coverage)
    if (count > 0) met.emplace(cell.kernel);
  const Machine machine = gpu::machine(0);
  for (const Kernel* kernel : kernel_table()) {
    if (kernel->device() != DeviceKind::cuda) continue;
    // What is compiled for 9.0 alone runs nowhere else.
    if (machine.compute_capability != 90 && !met.contains(kernel->name())) continue;
    if (kernel == &cuda::teaching::cutlass_pooled() &&
        !cuda::teaching::cutlass_pooled_missing().empty())
      continue;
    EXPECT_TRUE(met.contains(kernel->name()))
        << kernel->name() << " was met by no drawn stage or chain";
  }
}

}  // namespace
}  // namespace convoy::verify
