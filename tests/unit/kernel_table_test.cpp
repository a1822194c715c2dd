// The kernel table: what other libraries add to it, and when.
#include "plan/kernel_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "convoy/error.hpp"
#include "cpu/families.hpp"
#include "plain_options.hpp"
#include "plan/select.hpp"

namespace convoy {
namespace {

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(KernelTable, AddedKernelsFollowTheLibrarysOwn) {
  const Kernel *const own[] = {&cpu::direct()}, *const added[] = {&cpu::general(), &cpu::first()};
  KernelList list(own);
  list.add(added);
  const Kernel* const all[] = {&cpu::direct(), &cpu::general(), &cpu::first()};
  EXPECT_TRUE(std::ranges::equal(list.read(), all));
}

TEST(KernelTable, ANameBelongsToOneKernel) {
  const Kernel *const own[] = {&cpu::direct()}, *const added[] = {&cpu::first(), &cpu::direct()};
  KernelList list(own);
  EXPECT_NE(error_of([&] { list.add(added); }).find("kernel \"direct\": the kernel table has one"),
            std::string::npos);
  EXPECT_EQ(list.read().size(), 1U) << "none is added where one can't be";
}

TEST(KernelTable, AddingAfterAPlanWasMadeIsAnError) {
  const PlanOptions options = plain();
  const Selection selection =
      select(parse_stage("n1h8c8k8r3"), machine_for(options), options, nullptr);
  const auto before = kernel_table();
  const std::string error = error_of([&] {
    const Kernel* const late[] = {&selection.kernel()};
    add_kernels(late);
  });
  EXPECT_NE(error.find("added after a plan was made"), std::string::npos) << error;
  EXPECT_EQ(kernel_table().data(), before.data());
  EXPECT_EQ(kernel_table().size(), before.size());
}

// These tests are linked without convoy_teaching, as a user's program is.
TEST(KernelTable, ATeachingKernelIsSaidToBeElsewhere) {
  PlanOptions options = plain();
  const auto plan = [&] {
    select(parse_stage("n1h8c8k8r3"), machine_for(options), options, nullptr);
  };
  for (const char* name : {"ladder_3_shared", "ladder_fma", "cutlass_pooled"}) {
    options.kernel = name;
    const std::string error = error_of(plan);
    EXPECT_NE(error.find("It is a teaching kernel for GPUs"), std::string::npos) << error;
    EXPECT_NE(error.find("link convoy_teaching"), std::string::npos) << error;
  }
  options.kernel = "ladders";
  EXPECT_EQ(error_of(plan).find("teaching"), std::string::npos);
}

}  // namespace
}  // namespace convoy
