// The parity engine must see what is wrong: results are spoilt on purpose.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/machine.hpp"
#include "cpu/families.hpp"
#include "math/half.hpp"
#include "verify/error_bound.hpp"
#include "verify/parity.hpp"
#include "verify/verify.hpp"

namespace convoy::verify {
namespace {

TEST(Compare, SeesOneWrongElement) {
  const std::vector<double> want{1, -0.0, 3, std::nan("")};
  EXPECT_EQ(compare_exact("y", {1, 0, 3, std::nanf("")}, want, {4}), "");
  EXPECT_NE(compare_exact("y", {1, 0, std::nextafterf(3, 4), std::nanf("")}, want, {4}), "");
  EXPECT_NE(compare_exact("y", {1, 0, 3, 0}, want, {4}), "");
  EXPECT_NE(compare_exact("y", {1, 0, 3}, want, {4}), "");
  EXPECT_EQ(compare_close("y", {1.5F, 0, 3, std::nanf("")}, want, 0.5, {4}), "");
  EXPECT_NE(compare_close("y", {1.6F, 0, 3, std::nanf("")}, want, 0.5, {4}), "");
  EXPECT_NE(compare_close("y", {std::nanf(""), 0, 3, std::nanf("")}, want, 0.5, {4}), "");
  EXPECT_NE(compare_close("y", {INFINITY, 0, 3, std::nanf("")}, want, 0.5, {4}), "");
  EXPECT_NE(compare_bits("y", {0.0F}, {-0.0F}, {1}), "");
  EXPECT_EQ(position(23, {2, 3, 4}), "[1,2,3]");
}

// One that is drawn for no device would be verified nowhere.
TEST(Draws, MeetEveryActivation) {
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    Random random(1);
    std::set<Activation::Kind> met;
    for (int i = 0; i < 2000; ++i) met.insert(draw_stage(random, device).act.kind);
    for (int kind = 0; kind <= static_cast<int>(Activation::Kind::lif); ++kind)
      EXPECT_TRUE(met.contains(static_cast<Activation::Kind>(kind)))
          << "kind " << kind << ": draw it in src/verify/draw.cpp";
  }
}

// A pixel that a kernel reads as 0 spoils one product of each output that sees it. Nearly all of
// them are found, and nothing else: products of 512 channels are small beside their sum.
TEST(ErrorBound, AWrongProductIsSeen) {
  for (const char* text :
       {"n1h9c64k8r3pad1+bias", "n1h5c512k4r3pad1", "n2h12c3k16r5pad2+bias+leaky(3)",
        "f16:n1h9c64k8r3pad1+bias", "bf16:n1h6c16k8r3pad1out(f32)"}) {
    SCOPED_TRACE(text);
    const Stage stage = parse_stage(text);
    auto inputs = draw_inputs(stage, Data::normal, 5);
    Threads threads(1);
    const auto by_oracle = [&](reference::Sum sum) {
      return reference::Oracle(stage, inputs->weights, inputs->operands(), sum).all(threads).y;
    };
    const std::vector<double> want = by_oracle(reference::Sum::real),
                              bounds =
                                  error_bounds(stage, want, by_oracle(reference::Sum::magnitude));
    const auto spoilt = [&] {
      PlanOptions options;
      options.use_tuning = false;
      const Plan plan(stage, inputs->weights, options);
      const Result got = run_guarded(plan, *inputs, Views::dense);
      std::size_t count = 0;
      for (std::size_t i = 0; i < want.size(); ++i)
        count +=
            compare_close("y", {got.y[i]}, {want[i]}, std::vector<double>{bounds[i]}, {1}) != "";
      return count;
    };
    EXPECT_EQ(spoilt(), 0U);
    const Index pixel = (stage.h / 2 * stage.w + stage.w / 2) * stage.c;
    math::store(stage.dtype, inputs->x.view().data, pixel, 0.0F);
    const auto seen_by = static_cast<std::size_t>(stage.r * stage.s * stage.k);
    EXPECT_LE(spoilt(), seen_by);
    EXPECT_GE(spoilt(), seen_by * 8 / 10);
  }
}

// Outputs that see padding alone are 0, but for the rounding that Winograd's tiles bring.
TEST(ErrorBound, HoldsForOutputsThatSeePaddingAlone) {
  const Stage stage = parse_stage("n1h2c1k2r1");
  const std::vector<double> want{0, 0, 1, 2, 0, 0, 0, 0}, magnitude{0, 0, 4, 8, 0, 0, 0, 0};
  const std::vector<double> bounds = error_bounds(stage, want, magnitude);
  EXPECT_NEAR(bounds[0], 4 * tile_error * 0x1p-24, 1e-10);
  EXPECT_NEAR(bounds[1], 8 * tile_error * 0x1p-24, 1e-10);
  EXPECT_NEAR(bounds[3], (8 * (own_error + tile_error) + 2) * 0x1p-24, 1e-10);
  VerifyOptions options;
  options.stages = {parse_stage("n1h9w16c80k1r3pad4x0x5x0+leaky(0.01)")};
  options.seed = 9;
  for (const Failure& failure : verify(options).failures) ADD_FAILURE() << failure.what;
}

struct Ran {
  Inputs inputs;
  Result result;
  explicit Ran(const char* text) : inputs(*draw_inputs(parse_stage(text), Data::normal, 5)) {
    PlanOptions options;
    options.use_tuning = false;
    const Plan plan(inputs.stage, inputs.weights, options);
    result = run_guarded(plan, inputs, Views::strided);
  }
};

TEST(Spikes, AFlippedSpikeIsSeen) {
  for (const char* text : {"n2h6c4k9r3pad1+bias+if(0.5)+t3", "n2h6c4k9r3pad1+bias+if(0.5)+t3+max2",
                           "n2h6c4k9r3pad1+if(0.5)+t3+hold+max2+keep(act)"}) {
    Ran ran(text);
    ASSERT_EQ(ran.result.error, "");
    SpikeCount count;
    EXPECT_EQ(compare_spikes(ran.inputs, ran.result, count), "") << text;
    EXPECT_GT(count.spikes, 0);
    for (const std::size_t at :
         {std::size_t{0}, ran.result.y.size() / 2, ran.result.y.size() - 1}) {
      Result spoilt = ran.result;
      spoilt.y[at] = 1 - spoilt.y[at];
      EXPECT_NE(compare_spikes(ran.inputs, spoilt, count), "") << text << " at " << at;
    }
    Result spoilt = ran.result;
    spoilt.membrane[3] += 0.01F;
    EXPECT_NE(compare_spikes(ran.inputs, spoilt, count), "") << text;
  }
}

// The membrane is 1 to the last bit or just below: either answer is right, and counted.
TEST(Spikes, AMembraneAtTheThresholdIsExcused) {
  Inputs inputs;
  inputs.stage = parse_stage("n1h1c1k1r1+if(1)+t2+hold");
  inputs.x = Tensor(DType::f32, {1, 1, 1, 1});
  inputs.weights = Tensor(DType::f32, {1, 1, 1, 1});
  inputs.x.data<float>()[0] = 1;
  inputs.weights.data<float>()[0] = 1 - 0x1p-20F;
  SpikeCount count;
  Result late{.y = {0, 1}, .pre = {}, .act = {}, .membrane = {0}, .idx = {}, .error = {}};
  EXPECT_EQ(compare_spikes(inputs, late, count), "");
  EXPECT_EQ(count.excused, 0);
  Result early{.y = {1, 1}, .pre = {}, .act = {}, .membrane = {0}, .idx = {}, .error = {}};
  EXPECT_EQ(compare_spikes(inputs, early, count), "");
  EXPECT_EQ(count.excused, 2);
  inputs.weights.data<float>()[0] = 0.99F;
  EXPECT_NE(compare_spikes(inputs, early, count), "");
}

// A kernel that is wrong in one respect each.
class Wrong final : public Prepared {
 public:
  Wrong(std::unique_ptr<Prepared> right, int fault) : right_(std::move(right)), fault_(fault) {}
  std::string packing() const override { return right_->packing(); }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    return right_->pack(all);
  }
  void use(std::shared_ptr<const PackedWeights> weights) override { right_->use(weights); }
  std::size_t workspace_bytes() const override { return right_->workspace_bytes(); }
  Status run(const RunArgs& args) const noexcept override {
    const Status status = right_->run(args);
    auto* y = static_cast<float*>(args.y);
    if (fault_ == 1) y[-1] = 0;                        // before the first element
    if (fault_ == 2 && args.y_stride.w > 8) y[8] = 0;  // between two pixels
    if (fault_ == 3) y[5] = std::nanf("");             // not written
    if (fault_ == 4) y[5] += 1;
    if (fault_ == 5) y[args.n * args.y_stride.n] = 0;  // after the last element
    if (fault_ == 6) *static_cast<float*>(const_cast<void*>(args.x)) += 1;
    return status;
  }

 private:
  std::unique_ptr<Prepared> right_;
  int fault_;
};

// `winograd4` under its own name, by which plans are made, and with another bound.
class Bounded final : public StageKernel {
 public:
  explicit Bounded(double bound) : StageKernel(facts(bound)) {}
  void refuse(const Stage& stage, const Machine& m, Reasons& why) const override {
    why = cpu::winograd4().refusals(stage, m);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& m) const override {
    return cpu::winograd4().tiles(stage, m);
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& m) const override {
    return cpu::winograd4().cost(stage, tile, m);
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& m) const override {
    return cpu::winograd4().prepare(stage, tile, m);
  }

 private:
  static KernelFacts facts(double bound) {
    KernelFacts facts = cpu::winograd4().facts();
    facts.error_bound = bound;
    return facts;
  }
};

TEST(ErrorBound, OfTheKernelIsWhatItIsJudgedBy) {
  const Stage stage = parse_stage("n1h16c64k32r3pad1+bias");
  const Machine machine = cpu_machine(1);
  if (!cpu::winograd4().refusals(stage, machine).empty()) GTEST_SKIP() << "no winograd4 here";
  Threads threads(1);
  StageParity parity(stage, 1, {}, threads);
  const auto check = [&](double bound, Tally& tally) {
    const Bounded kernel(bound);
    return parity.check(kernel, kernel.tiles(stage, machine).front(), false, tally);
  };
  Tally tally;
  EXPECT_EQ(check(2, tally), std::vector<std::string>{});
  const double is = tally.worst;  // the error as a multiple of plain fp32's
  ASSERT_GT(is, 0.1);
  ASSERT_LT(is, 2);
  EXPECT_EQ(check(1.01 * is, tally), std::vector<std::string>{});
  const double less = 0.99 * is;
  const std::vector<std::string> failures = check(less, tally);
  ASSERT_FALSE(failures.empty());
  EXPECT_NE(failures.front().find(fmt::format("{} allowed", less)), std::string::npos)
      << failures.front();
}

TEST(Fences, WritesOutsideAreSeen) {
  const Stage stage = parse_stage("n2h5c3k8r3pad1+bias+strict");
  const auto inputs = draw_inputs(stage, Data::integers, 1);
  ASSERT_TRUE(inputs);
  const Operands operands = inputs->operands();
  Threads threads(1);
  const auto want =
      reference::Oracle(stage, inputs->weights, operands, reference::Sum::exact).all(threads);
  const Machine machine = cpu_machine(1);
  const Kernel& kernel = *fitting_kernels(stage, machine).back();
  for (const int fault : {0, 1, 2, 3, 4, 5, 6}) {
    Wrong wrong(kernel.prepare(stage, kernel.tiles(stage, machine).front(), machine), fault);
    set_weights(wrong, inputs->weights.data<float>());
    const Result result = run_guarded(
        [&](const Operands& given) {
          RunArgs args;
          args.n = stage.n;
          args.x = given.x.data;
          args.x_stride = {0, given.x.stride[0], given.x.stride[1], given.x.stride[2], 1};
          args.bias = static_cast<const float*>(given.bias.data);
          args.y = given.y.data;
          args.y_stride = {0, given.y.stride[0], given.y.stride[1], given.y.stride[2], 1};
          Tensor workspace(DType::u8, {static_cast<Index>(wrong.workspace_bytes())});
          args.workspace = workspace.data<std::byte>();
          args.threads = &threads;
          return wrong.run(args);
        },
        *inputs, Views::strided);
    const std::string why = compare_exact("y", result.y, want.y, {});
    const bool spoils_y = fault == 3 || fault == 4;
    EXPECT_EQ(result.error.empty(), fault == 0 || spoils_y) << fault << result.error;
    EXPECT_EQ(why.empty(), !spoils_y) << fault << why;
  }
}

}  // namespace
}  // namespace convoy::verify
