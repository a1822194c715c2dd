// Plans: selection, what is refused and how, and what a run does around its kernel.
#include "convoy/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "core/kernel.hpp"
#include "count_allocations.hpp"
#include "cpu/families.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"
#include "plan/workspaces.hpp"

namespace convoy {
namespace {

PlanOptions plain() {
  PlanOptions options;
  options.threads = 1;
  options.use_tuning = false;
  return options;
}

Tensor filled(DType dtype, const std::vector<Index>& shape) {
  Tensor tensor(dtype, shape);
  for (Index i = 0; i < tensor.elements(); ++i)
    tensor.data<float>()[i] = static_cast<float>((i * 7) % 13 - 6);
  return tensor;
}

// Everything that a run of a stage with f32 operands needs.
struct Ready {
  Stage stage;
  Tensor x, w, bias, y;
  Plan plan;
  explicit Ready(std::string_view text, const PlanOptions& options = plain())
      : stage(parse_stage(text)),
        x(filled(DType::f32, x_shape(stage))),
        w(filled(DType::f32, w_shape(stage))),
        bias(filled(DType::f32, {stage.k})),
        y(DType::f32, y_shape(stage)),
        plan(stage, w, options) {}
  Operands operands() const {
    Operands all;
    all.x = x;
    all.y = y;
    if (stage.bias) all.bias = bias;
    return all;
  }
};

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
  Ready full("n4h6c8k16r3pad1+bias+relu+max2");
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

TEST(Plan, WritesBesideItsInputInOneConcatenation) {
  Ready setup("n2h4c8k8r3pad1");
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
  Ready setup("n4h6c8k16r3pad1+bias+relu+max2");
  const auto says = [&](const Operands& operands, std::string_view part) {
    const std::string message = message_of(setup.plan, operands);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  Operands operands = setup.operands();
  operands.x = {};
  says(operands, "x: not given, expected f32[1..4,6,6,8]");
  operands = setup.operands();
  operands.x = TensorView(setup.x.data<float>(), DType::f32, {4, 6, 8, 6});
  says(operands, "x: found f32[4,6,8,6] on cpu, contiguous, expected f32[1..4,6,6,8]");
  operands = setup.operands();
  operands.x = TensorView(setup.x.data<float>(), DType::f16, {4, 6, 6, 8});
  says(operands, "expected f32");
  operands = setup.operands();
  operands.x = TensorView(setup.x.data<float>(), DType::f32, {5, 6, 6, 8});
  says(operands, "1..4");
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
  says(operands, "x: it is on cuda, the plan on cpu");
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
  EXPECT_NE(error_of(options).find("threads: -1"), std::string::npos);
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
  const long none = allocations_of_this_thread();
  const Tensor some(DType::f32, {4});
  ASSERT_GT(allocations_of_this_thread(), none);
  for (const std::string_view text :
       {"n4h16c16k32r3pad1+bias+relu+max2", "n4h16c16k32r3pad1+bias+relu+max2+strict",
        "n8h7c3k8r5pad2stride2+bias+relu", "n16h1c64k32r1+bias", "n2h9c8k8r3groups8pad1+bias"}) {
    // One thread: what TBB allocates for its own tasks is not ours to count.
    Ready setup(text);
    const Operands operands = setup.operands();
    setup.plan.run(operands).or_throw();
    const long before = allocations_of_this_thread();
    for (int i = 0; i < 5; ++i) setup.plan.run(operands).or_throw();
    EXPECT_EQ(allocations_of_this_thread(), before) << text;
  }
}

TEST(Plan, RunsFromManyThreadsAtOnce) {
  PlanOptions options = plain();
  options.concurrent_runs = 4;
  Ready setup("n4h16c16k32r3pad1+bias+relu+max2", options);
  setup.plan.run(setup.operands()).or_throw();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Tensor y(DType::f32, y_shape(setup.stage));
      Operands operands = setup.operands();
      operands.y = y;
      for (int round = 0; round < 20; ++round) {
        if (!setup.plan.run(operands).ok()) ++wrong;
        if (std::memcmp(y.data<float>(), setup.y.data<float>(), y.bytes()) != 0) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
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

TEST(Selection, DoesNotDependOnTheBatchOrTheThreads) {
  for (const std::string_view text :
       {"n1h14c256k512r3pad1+bias+relu+max2", "n1h56c64k64r1", "n1h32c3k64r3pad1+relu",
        "n1h8c128k128r3pad1+strict", "n1h20c8k8r5+if(1)+t2", "n1h1c256k128r1+bias"}) {
    Stage stage = parse_stage(text);
    std::string arithmetic;
    for (const Index n : {1, 2, 7, 64, 1000}) {
      for (const int threads : {1, 2, 8}) {
        stage.n = n;
        PlanOptions options = plain();
        options.threads = threads;
        const Selection selection = select(stage, machine_for(options), options, nullptr);
        if (arithmetic.empty()) arithmetic = selection.kernel().arithmetic();
        EXPECT_EQ(selection.kernel().arithmetic(), arithmetic) << text << " n " << n;
        if (stage.exact()) {
          EXPECT_TRUE(selection.kernel().exact());
        }
      }
    }
  }
}

TEST(Selection, EveryPredictionIsATime) {
  const Machine machine = machine_for(plain());
  for (const std::string_view text :
       {"n1h7c512k512r3pad1+bias+relu", "n4h32c64k128r3pad1+bias+relu+max2",
        "n8h32c3k256r3pad1+relu", "n256h28c1k8r5+bias+relu+max2", "n8h32c256k3r3pad1",
        "n1h56c64k256r1+bias", "n1000h1c256k128r1+bias", "n1h112c32k32r3pad1groups32+relu6",
        "u8:n1h16c3k8r3+norm+relu", "n1h224c3k64r7stride2pad3+relu+max3s2p1",
        "n2h12c8k16r5+if(1)+t2+max2"}) {
    const Stage stage = parse_stage(text);
    for (const Kernel* kernel : kernel_table()) {
      if (!kernel->refusals(stage, machine).empty()) continue;
      const std::vector<Tile> tiles = kernel->tiles(stage, machine);
      ASSERT_FALSE(tiles.empty()) << kernel->name() << " " << text;
      for (std::size_t i = 0; i < tiles.size(); ++i) {
        const Cost cost = kernel->cost(stage, tiles[i], machine);
        EXPECT_TRUE(std::isfinite(cost.seconds) && cost.seconds > 0)
            << kernel->name() << " " << text;
        EXPECT_TRUE(cost.waste >= 0 && cost.waste < 1) << kernel->name() << " " << text;
        EXPECT_GT(cost.flops, 0) << kernel->name() << " " << text;
        for (std::size_t j = 0; j < i; ++j)
          EXPECT_NE(tiles[i].name, tiles[j].name) << kernel->name() << " " << text;
      }
    }
  }
}

TEST(KernelTable, NamesAreUnique) {
  for (const Kernel* kernel : kernel_table())
    EXPECT_EQ(find_kernel(kernel->name(), kernel->device()), kernel) << kernel->name();
  EXPECT_EQ(find_kernel("none", DeviceKind::cpu), nullptr);
}

TEST(Selection, TuningChoosesAmongTilesOfOneArithmeticOnly) {
  const Stage stage = parse_stage("n4h16c32k32r3pad1+bias+relu+max2");
  const PlanOptions options = plain();
  const Machine machine = machine_for(options);
  const Selection guess = select(stage, machine, options, nullptr);
  for (const Verdict& verdict : guess.verdicts) {
    if (!verdict.fits()) continue;
    for (const RankedTile& ranked : verdict.tiles) {
      TuningCache cache;
      cache.set(machine, stage, {std::string(verdict.kernel->name()), ranked.tile.name, 1e-3});
      const Selection tuned = select(stage, machine, options, &cache);
      EXPECT_EQ(tuned.kernel().arithmetic(), guess.kernel().arithmetic());
      if (verdict.kernel->arithmetic() == guess.kernel().arithmetic()) {
        EXPECT_EQ(tuned.kernel().name(), verdict.kernel->name());
        EXPECT_EQ(tuned.tile.tile.name, ranked.tile.name);
        EXPECT_TRUE(tuned.tuned.has_value());
      }
    }
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

// Weights of 26 MB pass by once a step of rows, which a server's mesh delays: there pairs of taps
// took 1.6 times as long as F(2x2, 3x3) when their cost did not know it.
TEST(Cost, PairsOfTapsDoNotStreamTheirWeightsThroughAMesh) {
  Machine machine = cpu_machine(1);
  machine.l2_bytes = std::size_t{2} << 20;
  machine.l3_bytes = std::size_t{300} << 20;
  const auto least = [&](const Kernel& kernel, const Stage& stage) {
    double seconds = std::numeric_limits<double>::infinity();
    for (const Tile& tile : kernel.tiles(stage, machine))
      seconds = std::min(seconds, kernel.cost(stage, tile, machine).seconds);
    return seconds;
  };
  const Stage deep = parse_stage("n21h7w7c512k512r3pad1+strict");
  if (!cpu::winograd2().refusals(deep, machine).empty() ||
      !cpu::tap_pairs().refusals(deep, machine).empty())
    GTEST_SKIP() << "no vectors";
  EXPECT_LT(least(cpu::winograd2(), deep), least(cpu::tap_pairs(), deep));
  const Stage stem = parse_stage("n1h224c3k64r7stride2pad3+bias+relu+max3s2p1");
  EXPECT_LT(least(cpu::tap_pairs(), stem), least(cpu::direct(), stem));
}

}  // namespace
}  // namespace convoy
