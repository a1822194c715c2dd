// Rules of numbers that one small case each can break: the order of pool and threshold, membranes
// carried from run to run, and what becomes of NaN and infinity.
#include <gtest/gtest.h>

#include <limits>

#include "verify/parity.hpp"

namespace convoy::verify {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

Tensor tensor(const std::vector<Index>& shape, const std::vector<float>& values) {
  Tensor out(DType::f32, shape);
  EXPECT_EQ(out.elements(), static_cast<Index>(values.size()));
  std::copy(values.begin(), values.end(), out.data<float>());
  return out;
}

// Runs `x` with weights of one through each kernel that fits, and the oracle.
template <class Judge>
void each_kernel(const char* text, const std::vector<float>& x, Judge&& judge) {
  Inputs inputs;
  inputs.stage = parse_stage(text);
  const Stage& stage = inputs.stage;
  inputs.x = tensor(x_shape(stage), x);
  inputs.weights = Tensor(DType::f32, w_shape(stage));
  std::fill_n(inputs.weights.data<float>(), inputs.weights.elements(), 1.0F);

  Threads threads(1);
  const Operands operands = inputs.operands();
  const auto out =
      reference::Oracle(stage, inputs.weights, operands, reference::Sum::exact).all(threads);
  Result oracle;
  oracle.y.assign(out.y.begin(), out.y.end());
  oracle.idx = out.idx;
  {
    SCOPED_TRACE(std::string(text) + " by the oracle");
    judge(oracle);
  }
  const Machine machine = cpu_machine(1);
  for (const Kernel* kernel : fitting_kernels(stage, machine)) {
    PlanOptions options;
    options.threads = 1;
    options.use_tuning = false;
    options.kernel = kernel->name();
    const Plan plan(stage, inputs.weights, options);
    SCOPED_TRACE(std::string(text) + " by " + plan.kernel());
    const Result result = run_guarded(plan, inputs, Views::dense);
    ASSERT_EQ(result.error, "");
    judge(result);
  }
}

// Inputs 0.35 and 0.5, held: the second neuron fires in step 2, the first in step 3. A pool before
// the threshold would only see 0.5 and give 0, 1, 0.
TEST(Rules, PoolComesAfterTheThresholdFromThreeSteps) {
  each_kernel("n1h2c1k1r1+if(1)+t3+hold+max2", {0.35F, 0.5F, 0.35F, 0.35F},
              [](const Result& result) {
                EXPECT_EQ(result.y, (std::vector<float>{0, 1, 1}));
              });
  each_kernel("n1h2c1k1r1+if(1)+t2+hold+max2", {0.35F, 0.5F, 0.35F, 0.35F},
              [](const Result& result) {
                EXPECT_EQ(result.y, (std::vector<float>{0, 1}));
              });
}

TEST(Rules, NeuronFiresAtTheThresholdAndResets) {
  each_kernel("n1h1c1k1r1+if(1)+t4+hold", {0.75F}, [](const Result& result) {
    EXPECT_EQ(result.y, (std::vector<float>{0, 1, 0, 1}));  // 0.75 1.5 | 0.75 1.5
  });
  each_kernel("n1h1c1k1r1+if(1)+soft+t4+hold", {0.75F}, [](const Result& result) {
    EXPECT_EQ(result.y, (std::vector<float>{0, 1, 1, 1}));  // 0.75 1.5 | 1.25 | 1.0
  });
  each_kernel("n1h1c1k1r1+lif(2,1)+t3+hold", {1.5F}, [](const Result& result) {
    EXPECT_EQ(result.y, (std::vector<float>{0, 1, 0}));  // 0.75 1.125 | 0.75
  });
}

TEST(Rules, NanPassesActivationsAndWinsThePool) {
  for (const char* act : {"+relu", "+relu6", "+clip(0,1)", "+leaky(0.1)", ""}) {
    const std::string text = std::string("n1h2c1k1r1") + act;
    each_kernel(text.c_str(), {nan, -infinity, infinity, 0.5F}, [&](const Result& result) {
      EXPECT_TRUE(std::isnan(result.y[0]));
      EXPECT_EQ(result.y[3], 0.5F);
      const std::string name = act;
      EXPECT_EQ(result.y[1], name.empty() || name == "+leaky(0.1)" ? -infinity : 0.0F);
      EXPECT_EQ(result.y[2], name == "+relu6" ? 6.0F : name == "+clip(0,1)" ? 1.0F : infinity);
    });
  }
  for (std::size_t at = 0; at < 4; ++at) {
    std::vector<float> x{1, 4, 3, 2};
    x[at] = nan;
    each_kernel("n1h2c1k1r1+relu+max2", x,
                [](const Result& result) { EXPECT_TRUE(std::isnan(result.y[0])); });
  }
}

// PyTorch's choices: the first of equal maxima, the last of several NaN, the first position of a
// window of -inf.
TEST(Rules, IndexOfTheMaximum) {
  const auto index = [](const std::vector<float>& x, std::int32_t want) {
    each_kernel("n1h2c1k1r1+max2+keep(idx)", x, [&](const Result& result) {
      EXPECT_EQ(result.idx, std::vector<std::int32_t>{want});
    });
  };
  index({1, 7, 7, 2}, 1);
  index({1, nan, nan, 5}, 2);
  index({-infinity, -infinity, -infinity, -infinity}, 0);
  index({-infinity, -infinity, -3, -infinity}, 2);
}

// A NaN weight outside of the image's reach must not touch what padding stands for.
TEST(Rules, TapsOutsideTheImageAreSkipped) {
  const Stage stage = parse_stage("n1h1c1k1r3pad1");
  Inputs inputs;
  inputs.stage = stage;
  inputs.x = tensor({1, 1, 1, 1}, {2});
  inputs.weights = tensor({1, 3, 3, 1}, {nan, infinity, 1, 1, 3, 1, 1, -infinity, nan});
  const Machine machine = cpu_machine(1);
  for (const Kernel* kernel : fitting_kernels(stage, machine)) {
    PlanOptions options;
    options.kernel = kernel->name();
    options.use_tuning = false;
    const Plan plan(stage, inputs.weights, options);
    const Result result = run_guarded(plan, inputs, Views::dense);
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(result.y, std::vector<float>{6}) << kernel->name();
  }
}

// Four steps are twice two steps with the membranes handed on.
TEST(Rules, MembranesCarryOver) {
  const Stage four = parse_stage("n2h6c5k7r3pad1+bias+lif(2,0.5)+soft+t4+hold+max2");
  const auto inputs = draw_inputs(four, Data::normal, 3);
  const auto run = [&](Index steps, const Tensor& membrane) {
    Inputs part = repeat_images(*inputs, 0, four.n);
    part.stage.t = steps;
    part.membrane_in = membrane.clone();
    PlanOptions options;
    options.use_tuning = false;
    const Plan plan(part.stage, part.weights, options);
    return run_guarded(plan, part, Views::dense);
  };
  const Tensor zero(DType::f32, membrane_shape(four));
  const Result whole = run(4, zero);
  const Result first = run(2, zero);
  const Result second = run(2, tensor(membrane_shape(four), first.membrane));
  ASSERT_EQ(whole.error + first.error + second.error, "");
  std::vector<float> both = first.y;
  both.insert(both.end(), second.y.begin(), second.y.end());
  EXPECT_EQ(compare_bits("y", both, whole.y, {}), "");
  EXPECT_EQ(compare_bits("membrane", second.membrane, whole.membrane, {}), "");
}

}  // namespace
}  // namespace convoy::verify
