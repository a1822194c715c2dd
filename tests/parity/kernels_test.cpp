// Every kernel of the table against the oracle: drawn stages, and more until each tile, epilogue
// and tail case has been met five times. `convoy verify` does the same at length.
#include <gtest/gtest.h>

#include "plan/kernel_table.hpp"
#include "verify/verify.hpp"

namespace convoy::verify {
namespace {

std::vector<std::string> kernels() {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernel_table())
    if (kernel->device() == DeviceKind::cpu) names.emplace_back(kernel->name());
  return names;
}

class Parity : public testing::TestWithParam<std::string> {};

TEST_P(Parity, DrawnStages) {
  VerifyOptions options;
  options.random = 160;
  options.seed = 20;
  options.kernel = GetParam();
#if defined(__SANITIZE_ADDRESS__)
  // Memory is what is looked at here: every way through a kernel once. Five times is for the bits,
  // which the release's run looks at.
  options.random = 40;
  options.fill = 1;
#endif
  // Without vectors a kernel may fit nowhere. With them each must show what it can do.
  Report report;
  if (cpu_machine(1).isa != "scalar") {
    report = verify(options);
  } else {
    try {
      report = verify(options);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  EXPECT_GT(report.checks, 5);
  for (const Failure& failure : report.failures)
    ADD_FAILURE() << failure.what << "\nrepro: " << failure.repro;
  for (const Cell& cell : report.gaps())
    ADD_FAILURE() << "not covered: " << cell.kernel << " " << cell.tile << ", " << cell.epilogue
                  << ", " << cell.tail;
}

INSTANTIATE_TEST_SUITE_P(All, Parity, testing::ValuesIn(kernels()),
                         [](const auto& test) { return test.param; });

// Every pair of awkward fields that a stage can have: it can be drawn, and every kernel that takes
// the stage is right.
TEST(ParityOfFields, EveryPair) {
  Random random(9);
  FieldPairs pairs;
  VerifyOptions options;
  const std::vector<Stage> stages = fill_fields({}, 1, DeviceKind::cpu, random, pairs);
  options.stages.assign(stages.begin(), stages.end());
  EXPECT_GT(pairs.size(), 1600U);
  for (const auto& [pair, count] : pairs)
    EXPECT_GE(count, 1) << fields()[static_cast<std::size_t>(pair.first)].name;
  for (const Failure& failure : verify(options).failures)
    ADD_FAILURE() << failure.what << "\nrepro: " << failure.repro;
}

// What is beyond the largest number of the output's type is infinite there, and no failure.
TEST(ParityOfOutputs, BeyondTheirType) {
  VerifyOptions options;
  options.non_finite = true;
  for (const char* text :
       {"f16:n1h5c64k40r5+leaky(1000)", "f16:n1h8c4k4r3+leaky(1e30)+max2+keep(act,idx)",
        "bf16:n1h5c64k40r5+norm+leaky(1e37)", "n1h5c64k40r5+leaky(1e37)",
        "f16:n1h70c4k4r3+leaky(-3000)+keep(act)", "n1h8c16k16r3+leaky(1e37)+max3s1+keep(act,idx)"})
    options.stages.push_back(parse_stage(text));
  const Report report = verify(options);
  EXPECT_GE(report.checks, 6);
  for (const Failure& failure : report.failures)
    ADD_FAILURE() << failure.what << "\nrepro: " << failure.repro;
}

// Of few outputs plain fp32's largest error depends much on the order of summation: this stage's,
// by the very sums that it is measured with in another order, is over twice as large. Its outputs
// are bounded each by itself.
TEST(ParityOfFewOutputs, BoundsEachOutputByItself) {
  VerifyOptions options;
  options.stages = {parse_stage("n3h2w2c16k13r3pad2+bias+max2")};
  options.seed = 31;
  options.kernel = "general";
  const Report report = verify(options);
  EXPECT_GT(report.checks, 0);
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure.what;
}

// Kernels that share an arithmetic share their bits, here the families that are not drawn together
// often enough.
TEST(ParityOfArithmetics, SameBits) {
  VerifyOptions options;
  for (const char* text :
       {"n2h14c16k32r3pad1+bias+relu+max2+strict", "n1h16c3k16r3pad1+bias+relu+max2+strict",
        "n3h9c24k16r1+bias+relu", "n2h12c20k3r3pad1+bias", "n1h9w11c600k3r3pad1+bias",
        "n1h11c24k24r3pad1groups24+bias+relu6", "u8:n2h28c1k8r5+norm+bias+relu+max2",
        "n1h23c3k16r7stride2pad3+bias+relu+max3s2p1"})
    options.stages.push_back(parse_stage(text));
  for (const Failure& failure : verify(options).failures)
    ADD_FAILURE() << failure.what << "\nrepro: " << failure.repro;
}

// Plain fp32 in two orders: here, where channels are scaled, the sums in the order r, s, c
// have 2.06 times the largest error of those in the order c, r, s. No kernel is at fault.
TEST(ParityOfArithmetics, OrdersOfTheSameProductsMayDiffer) {
  VerifyOptions options;
  options.stages.push_back(parse_stage("n2h9w9c300k5r3pad1+bias"));
  const Report report = verify(options);
  for (const Failure& failure : report.failures)
    ADD_FAILURE() << failure.what << "\nrepro: " << failure.repro;
}

// Where a CPU has no FMA, plain fp32 rounds products too: the largest value of the first stage, one
// of 10,240, has 2.01 times the largest error of chains of FMAs, one of the second 2.03 times that
// of eight chains in the order c, r, s. Both are sums that plain fp32 gives.
TEST(ParityOfArithmetics, PlainFp32IsSummedAsTheMachineDoes) {
  VerifyOptions options;
  options.stages = {parse_stage("n5h8w16c24k16r1+bias+relu6+max2"),
                    parse_stage("n5h7w7c4k17r7pad3+bias+max2x3s3x4p1")};
  options.seed = 11;
  for (const Failure& failure : verify(options).failures)
    ADD_FAILURE() << failure.what << "\nrepro: " << failure.repro;
}

TEST(ParityDriver, RefusesWhatDoesNotExistOrFit) {
  VerifyOptions options;
  options.stages.push_back(parse_stage("n1h8c16k16r5pad2"));
  options.kernel = "winograd9";
  EXPECT_THROW(verify(options), Error);
  options.kernel = "winograd2";
  EXPECT_THROW(verify(options), Error);
}

TEST(ParityDriver, NothingToCheckIsAnError) {
  VerifyOptions options;
  EXPECT_THROW(verify(options), Error);
  options.random = 3;
  options.fill = 0;
  options.kernel = "winograd2";
  options.tile = "tiles7";
  EXPECT_THROW(verify(options), Error);
}

}  // namespace
}  // namespace convoy::verify
