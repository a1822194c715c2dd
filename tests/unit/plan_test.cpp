// Plans: what is refused and how, and what a run does around its kernel.
#include "convoy/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "count_allocations.hpp"
#include "plan/workspaces.hpp"
#include "ready_plan.hpp"

namespace convoy {
namespace {

std::string message_of(const Plan& plan, const Operands& operands) {
  return plan.run(operands).message();
}

TEST(Plan, ComputesTheStage) {
  // 2x2 image, one filter of ones, no padding but that of a 2x2 filter: sums by hand.
  const Stage stage = parse_stage("n1h2c1k1r2+bias+relu");
  std::vector<float> x{1, 2, 3, -10}, w{1, 1, 1, 1}, bias{5}, y{99};
  const Plan plan(stage, TensorView::of(w.data(), {1, 2, 2, 1}), plain());
  Operands operands;
  operands.x = TensorView::of(x.data(), {1, 2, 2, 1});
  operands.bias = TensorView::of(bias.data(), {1});
  operands.y = TensorView::of(y.data(), {1, 1, 1, 1});
  plan.run(operands).or_throw();
  EXPECT_EQ(y[0], 1.0F);
  x[3] = -100;
  plan.run(operands).or_throw();
  EXPECT_EQ(y[0], 0.0F);
}

TEST(Plan, FlipsFilters) {
  const Stage stage = parse_stage("n1h2c1k1r2");
  std::vector<float> x{1, 10, 100, 1000}, w{1, 2, 3, 4}, y{0};
  PlanOptions options = plain();
  Operands operands;
  operands.x = TensorView::of(x.data(), {1, 2, 2, 1});
  operands.y = TensorView::of(y.data(), {1, 1, 1, 1});
  Plan(stage, TensorView::of(w.data(), {1, 2, 2, 1}), options).run(operands).or_throw();
  EXPECT_EQ(y[0], 4321.0F);
  options.flip_filters = true;
  Plan(stage, TensorView::of(w.data(), {1, 2, 2, 1}), options).run(operands).or_throw();
  EXPECT_EQ(y[0], 1234.0F);
}

TEST(Plan, RunsFewerImagesAndSlices) {
  ReadyPlan full("n4h6c8k16r3pad1+bias+relu+max2");
  full.plan.run(full.operands()).or_throw();

  // The same x as channels 5..12 of a wider tensor, y into channels 3..18 of another; two images.
  Tensor wide_x(DType::f32, {2, 6, 6, 20}), wide_y(DType::f32, {2, 3, 3, 24});
  for (Index pixel = 0; pixel < 2 * 36; ++pixel)
    for (Index c = 0; c < 8; ++c)
      wide_x.data<float>()[pixel * 20 + 5 + c] = full.x.data<float>()[pixel * 8 + c];
  for (Index i = 0; i < wide_y.elements(); ++i) wide_y.data<float>()[i] = -1;
  Operands slices = full.operands();
  slices.x = wide_x.view().channels(5, 8);
  slices.y = wide_y.view().channels(3, 16);
  full.plan.run(slices).or_throw();
  for (Index pixel = 0; pixel < 2 * 9; ++pixel)
    for (Index k = 0; k < 24; ++k) {
      const float expected = k < 3 || k >= 19 ? -1.0F : full.y.data<float>()[pixel * 16 + k - 3];
      ASSERT_EQ(wide_y.data<float>()[pixel * 24 + k], expected) << pixel << " " << k;
    }
}

// With null pointers, as an empty std::vector has them, and with memory that stays as it is.
TEST(Plan, RunsNoImages) {
  for (const char* text :
       {"n4h6c8k16r3pad1+bias+relu+max2", "n4h6c8k16r3pad1nchw+bias",
        "n4h6c8k16r3pad1+bias+if(1)+t2", "n4h6c8k16r3pad1+bias+relu+keep(pre,act,idx)+max2"}) {
    ReadyPlan setup(text);
    const Stage& stage = setup.stage;
    const auto empty = [&](std::vector<Index> shape, DType type = DType::f32) {
      shape.at(shape.size() - 4) = 0;
      return TensorView(nullptr, type, shape);
    };
    Operands operands = setup.operands();
    operands.x = empty(x_shape(stage)), operands.y = empty(y_shape(stage));
    if (stage.act.is_neuron()) {
      operands.membrane_in = empty(membrane_shape(stage));
      operands.membrane_out = empty(membrane_shape(stage));
    }
    if (stage.keep.any()) {
      operands.pre = empty(pre_shape(stage)), operands.act = empty(pre_shape(stage));
      operands.idx = empty(y_shape(stage), DType::i32);
    }
    EXPECT_EQ(message_of(setup.plan, operands), "") << text;
    operands.y.data = setup.y.data<float>(), operands.x.stride.fill(-7);
    EXPECT_EQ(message_of(setup.plan, operands), "") << text;
    for (Index i = 0; i < setup.y.elements(); ++i) ASSERT_EQ(setup.y.data<float>()[i], 0) << text;

    operands.y = setup.y;
    EXPECT_NE(message_of(setup.plan, operands).find("y: 4 images, but x has 0"), std::string::npos);
    operands.y = empty(y_shape(stage)), operands.bias = {};
    EXPECT_NE(message_of(setup.plan, operands).find("bias: not given"), std::string::npos) << text;
  }
}

TEST(Plan, RunsNoImagesWithoutAWorkspace) {
  PlanOptions options = plain();
  options.kernel = "winograd2", options.owns_workspace = false;
  ReadyPlan setup("n2h20c16k16r3pad1", options);
  ASSERT_GT(setup.plan.workspace_bytes(), 0U);
  EXPECT_EQ(setup.plan.run(setup.operands()).code(), StatusCode::no_workspace);
  Operands none = setup.operands();
  none.x.shape[0] = none.y.shape[0] = 0;
  EXPECT_TRUE(setup.plan.run(none).ok());
  none.workspace = setup.x.data<char>();  // around the empty x
  EXPECT_TRUE(setup.plan.run(none).ok());
}

TEST(Plan, WritesBesideItsInputInOneConcatenation) {
  ReadyPlan setup("n2h4c8k8r3pad1");
  setup.plan.run(setup.operands()).or_throw();
  Tensor both(DType::f32, {2, 4, 4, 16});
  for (Index pixel = 0; pixel < 32; ++pixel)
    for (Index c = 0; c < 8; ++c)
      both.data<float>()[pixel * 16 + c] = setup.x.data<float>()[pixel * 8 + c];
  Operands operands;
  operands.x = both.view().channels(0, 8);
  operands.y = both.view().channels(8, 8);
  setup.plan.run(operands).or_throw();
  for (Index pixel = 0; pixel < 32; ++pixel)
    for (Index k = 0; k < 8; ++k)
      ASSERT_EQ(both.data<float>()[pixel * 16 + 8 + k], setup.y.data<float>()[pixel * 8 + k]);
  operands.y = both.view().channels(7, 8);
  EXPECT_NE(message_of(setup.plan, operands).find("overlap"), std::string::npos);
}

TEST(Plan, NamesWhatIsWrongWithAnOperand) {
  ReadyPlan setup("n4h6c8k16r3pad1+bias+relu+max2");
  const auto says = [&](const Operands& operands, std::string_view part) {
    const std::string message = message_of(setup.plan, operands);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  Operands operands = setup.operands();
  operands.x = {};
  says(operands, "x: not given, expected f32[0..4,6,6,8]");
  operands = setup.operands();
  operands.x = TensorView(setup.x.data<float>(), DType::f32, {4, 6, 8, 6});
  says(operands, "x: found f32[4,6,8,6] on cpu, contiguous, expected f32[0..4,6,6,8]");
  operands = setup.operands();
  operands.x = TensorView(setup.x.data<float>(), DType::f16, {4, 6, 6, 8});
  says(operands, "expected f32");
  operands = setup.operands();
  operands.x = TensorView(setup.x.data<float>(), DType::f32, {5, 6, 6, 8});
  says(operands, "0..4");
  operands = setup.operands();
  operands.y = TensorView(setup.y.data<float>(), DType::f32, {3, 3, 3, 16});
  says(operands, "y: 3 images, but x has 4");
  operands = setup.operands();
  operands.bias = {};
  says(operands, "bias: not given, expected f32[16] for +bias");
  operands = setup.operands();
  operands.membrane_in = setup.x;
  says(operands, "membrane_in: given, but the stage has no neuron");
  operands = setup.operands();
  operands.y = setup.x;
  operands.y.shape = {4, 3, 3, 16};
  operands.y.stride = {144, 48, 16, 1};
  says(operands, "y and x overlap");
  operands = setup.operands();
  operands.x.data = setup.x.data<char>() + 2;
  says(operands, "multiple of 4");
  operands = setup.operands();
  operands.x.stride[1] = 47;
  says(operands, "rows and images without gaps");
  operands = setup.operands();
  operands.x.device = {DeviceKind::cuda, 0};
  says(operands, "x: it is on cuda, expected cpu");
  operands = setup.operands();
  operands.x.stride[0] = operands.x.stride[1] = operands.x.stride[2] =
      std::numeric_limits<Index>::max();
  says(operands, "Expected NHWC");
  EXPECT_TRUE(setup.plan.run(setup.operands()).ok());
}

TEST(Plan, WantsWeightsFirst) {
  const Stage stage = parse_stage("n1h4c2k2r3");
  Plan plan(stage, plain());
  Tensor x(DType::f32, x_shape(stage)), y(DType::f32, y_shape(stage));
  Operands operands;
  operands.x = x;
  operands.y = y;
  EXPECT_NE(message_of(plan, operands).find("set_weights"), std::string::npos);
  Tensor wrong(DType::f32, {2, 3, 3, 1});
  EXPECT_THROW(plan.set_weights(wrong), Error);
  EXPECT_THROW(plan.set_weights({}), Error);
  Tensor right(DType::f32, {2, 3, 3, 2});
  plan.set_weights(right);
  EXPECT_TRUE(plan.run(operands).ok());
}

TEST(Plan, RefusesWithReasons) {
  const Stage stage = parse_stage("n1h8c4k4r3pad1");
  const auto error_of = [&](PlanOptions options) {
    try {
      const Plan plan(stage, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  PlanOptions options = plain();
  options.kernel = "winograd9";
  EXPECT_NE(error_of(options).find("general"), std::string::npos);
  options = plain();
  options.tile = "no such tile";
  EXPECT_NE(error_of(options).find("no such tile"), std::string::npos);
  options = plain();
  options.threads = -1;
  EXPECT_NE(error_of(options).find("threads: found -1"), std::string::npos);
  options = plain();
  options.concurrent_runs = 0;
  EXPECT_NE(error_of(options).find("concurrent_runs: 0"), std::string::npos);
  options = plain();
  options.device = {DeviceKind::cuda, 0};
  EXPECT_FALSE(error_of(options).empty());
  EXPECT_THROW(Plan(Stage{.h = 4, .w = 4, .c = 0, .k = 1, .r = 1, .s = 1}, plain()), Error);
}

TEST(Plan, WarmRunsDoNotAllocate) {
  if (!counts_allocations) GTEST_SKIP() << "a sanitizer has malloc for itself";
  const long none = allocations();
  const Tensor some(DType::f32, {4});
  ASSERT_GT(allocations(), none);
  const long before_another = allocations();
  std::thread([] { const Tensor more(DType::f32, {4}); }).join();
  ASSERT_GE(allocations(), before_another + 2);  // the thread's own start, and what it did
  for (const std::string_view text :
       {"n4h16c16k32r3pad1+bias+relu+max2", "n4h16c16k32r3pad1+bias+relu+max2+strict",
        "n8h7c3k8r5pad2stride2+bias+relu", "n16h1c64k32r1+bias", "n2h9c8k8r3groups8pad1+bias"}) {
    for (const int threads : {1, 2}) {
      PlanOptions options = plain();
      options.threads = threads;
      options.all_threads = true;
      ReadyPlan setup(text, options);
      const Operands operands = setup.operands();
      setup.plan.run(operands).or_throw();
      const long before = allocations();
      for (int i = 0; i < 50; ++i) setup.plan.run(operands).or_throw();
      EXPECT_EQ(allocations() - before, 0) << text << ", threads: " << threads;
    }
  }
}

// With as many workspaces as runs, and with one: then they wait for each other.
void run_from_four_threads(int concurrent_runs) {
  PlanOptions options = plain();
  options.concurrent_runs = concurrent_runs;
  ReadyPlan setup("n4h16c16k32r3pad1+bias+relu+max2", options);
  ASSERT_GT(setup.plan.workspace_bytes(), 0U);
  setup.plan.run(setup.operands()).or_throw();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Tensor y(DType::f32, y_shape(setup.stage));
      Operands operands = setup.operands();
      operands.y = y;
      for (int round = 0; round < 20; ++round) {
        std::memset(y.data<float>(), 0xFF, y.bytes());
        if (!setup.plan.run(operands).ok()) ++wrong;
        if (std::memcmp(y.data<float>(), setup.y.data<float>(), y.bytes()) != 0) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}
TEST(Plan, RunsFromManyThreadsAtOnce) {
  run_from_four_threads(4);
}
TEST(Plan, RunsFromManyThreadsByDefault) {
  run_from_four_threads(PlanOptions().concurrent_runs);
}

TEST(Plan, TakesAStagesDefaults) {
  const Stage brief{.n = 2, .h = 9, .c = 4, .k = 4, .r = 3, .pool = Pool{.window = 3}};
  const Plan plan(brief, plain());
  EXPECT_EQ(plan.stage(), brief);
  EXPECT_EQ(plan.stage().w, 9);
  EXPECT_EQ(plan.stage().pool->stride, Extent{3});
}

static_assert(!std::is_convertible_v<Stage, Plan>);

TEST(Workspaces, OneThatWaitsGetsWhatIsGivenBack) {
  Workspaces workspaces(100, 1);
  std::byte* const held = workspaces.wait();
  EXPECT_EQ(workspaces.take(), nullptr);
  std::atomic<int> in_use{1}, most{1};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::byte* const mine = workspaces.wait();
        const int now = ++in_use;
        int seen = most.load();
        while (seen < now && !most.compare_exchange_weak(seen, now)) {
        }
        --in_use;
        workspaces.give(mine);
      }
    });
  }
  --in_use;
  workspaces.give(held);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most.load(), 1);
  EXPECT_EQ(workspaces.take(), held);
}

TEST(Workspaces, GivesEachOnceAndTakesThemBack) {
  for (const int count : {1, 3, 64}) {
    Workspaces workspaces(100, count);
    std::vector<std::byte*> taken;
    for (int i = 0; i < count; ++i) {
      taken.push_back(workspaces.take());
      ASSERT_NE(taken.back(), nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(taken.back()) % 64, 0U);
      for (int j = 0; j < i; ++j)
        EXPECT_GE(std::abs(taken.back() - taken[static_cast<std::size_t>(j)]), 100);
    }
    EXPECT_EQ(workspaces.take(), nullptr);
    workspaces.give(taken[0]);
    EXPECT_EQ(workspaces.take(), taken[0]);
  }
}

TEST(FoldBatchnorm, EqualsConvolutionThenNorm) {
  std::vector<float> w{1, -2, 3, 4}, b{0.5F, -1}, gamma{2, 0.5F}, beta{1, -3}, mean{0.25F, 4},
      variance{4, 0.25F};
  fold_batchnorm(TensorView::of(w.data(), {2, 1, 1, 2}), TensorView::of(b.data(), {2}),
                 TensorView::of(gamma.data(), {2}), TensorView::of(beta.data(), {2}),
                 TensorView::of(mean.data(), {2}), TensorView::of(variance.data(), {2}), 0.0F);
  EXPECT_EQ(w, (std::vector<float>{1, -2, 3, 4}));  // 2 / sqrt(4) and 0.5 / sqrt(0.25) are 1
  EXPECT_EQ(b, (std::vector<float>{1.25F, -8}));
  variance[1] = -1;
  EXPECT_THROW(
      fold_batchnorm(TensorView::of(w.data(), {2, 1, 1, 2}), TensorView::of(b.data(), {2}),
                     TensorView::of(gamma.data(), {2}), TensorView::of(beta.data(), {2}),
                     TensorView::of(mean.data(), {2}), TensorView::of(variance.data(), {2})),
      Error);
}

}  // namespace
}  // namespace convoy
