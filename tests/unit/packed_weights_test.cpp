// Packed weights of the CPU's families: plans of one packing share them, whatever their n.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/kernel.hpp"
#include "plan/kernel_table.hpp"

namespace convoy {
namespace {

struct Line {
  const char *kernel, *stage, *other;  // other: of another packing
};
constexpr Line lines[] = {
    {"direct", "n3h9c16k20r3pad1+bias+relu+max2", "n3h9c16k24r3pad1+bias"},
    {"winograd2", "n3h9c16k20r3pad1+bias+relu+max2", "n3h9c16k20r3pad1stride2+bias"},
    {"winograd4", "n3h9c64k20r3pad1+bias+relu", "n3h9c72k20r3pad1"},
    {"first", "n3h9c1k6r3pad1+bias+relu+max2", "n3h9c1k6r5s3pad1"},
    {"first_winograd2", "n3h9c3k20r3pad1+bias+relu", "n3h9c4k20r3pad1"},
    {"tap_pairs", "n3h15c3k20r7pad3stride2+bias+relu+max3s2", "n3h15c3k20r7pad3"},
    {"few_filters", "n3h9c64k3r3pad1+bias+relu", "n3h9c80k3r3pad1"},
    {"depthwise", "n3h9c24k24r3pad1groups24+bias+relu6", "n3h9c24k24r5pad1groups24"},
    {"grouped", "n3h9c24k36r3pad1groups12+bias+relu6+max2", "n3h9c24k48r3pad1groups12"},
    {"winograd2_neuron", "n3h9c16k20r3pad1+bias+if(1)+t2", "n3h9c16k24r3pad1+if(1)"},
    {"tap_pairs_neuron", "n3h9c16k20r5pad2+bias+lif(2,1)+t2+max2", "n3h9c16k24r5pad2+if(1)"},
    {"direct_neuron", "n3h9c16k20r1+bias+lif(2,1)+t2+hold", "n3h9c16k24r1+if(1)"},
    {"general", "n3h9c8k8r3pad1+bias+lif(2,1)+t2", "n3h9c8k8r3pad1groups2"},
};

const Kernel& kernel_of(const std::string& name) {
  const Kernel* const kernel = find_kernel(name, DeviceKind::cpu);
  if (!kernel) throw std::runtime_error("no kernel " + name);
  return *kernel;
}

std::vector<float> normal(Index count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

Strides dense(Index n, Index h, Index w, Index c) {
  return {n * h * w * c, h * w * c, w * c, c, 1};
}

// y of the first n images, from memory that was all NaN.
std::vector<float> run(const Prepared& prepared, const Stage& stage, Index n) {
  const Shapes shapes = shapes_of(stage);
  const std::vector<float> x = normal(stage.t * n * stage.h * stage.w * stage.c, 1);
  const std::vector<float> bias = normal(stage.k, 2);
  Buffer<std::byte> workspace(prepared.workspace_bytes());
  std::memset(workspace.data(), 0xff, workspace.size());
  std::vector<float> y(
      static_cast<std::size_t>(stage.t * n * shapes.out_h * shapes.out_w * stage.k),
      std::numeric_limits<float>::quiet_NaN());
  Threads threads(1);
  RunArgs args;
  args.n = n;
  args.x = x.data();
  args.x_stride = dense(n, stage.h, stage.w, stage.c);
  if (stage.bias) args.bias = bias.data();
  args.y = y.data();
  args.y_stride = dense(n, shapes.out_h, shapes.out_w, stage.k);
  args.workspace = workspace.data();
  args.threads = &threads;
  prepared.run(args).or_throw();
  return y;
}

class PackedWeightsOf : public testing::TestWithParam<Line> {
 protected:
  std::unique_ptr<Prepared> prepare(const Stage& stage) const {
    const Kernel& kernel = kernel_of(GetParam().kernel);
    EXPECT_EQ(kernel.refusals(stage, machine_), std::vector<std::string>());
    return kernel.prepare(stage, kernel.tiles(stage, machine_).front(), machine_);
  }
  std::vector<float> weights(unsigned seed) const {
    return normal(shapes_of(stage_).w_elements, seed);
  }
  static std::shared_ptr<const PackedWeights> pack(const Prepared& prepared,
                                                   const std::vector<float>& w) {
    const Parameters parameters{.w = w.data()};
    return prepared.pack({&parameters, 1});
  }

  const Machine machine_ = cpu_machine(1);
  const Stage stage_ = parse_stage(GetParam().stage);
};

// Two batch sizes read one object, also after the plan that made it is gone, and give the bits of
// plans that have weights of their own.
TEST_P(PackedWeightsOf, TwoBatchSizesShareThem) {
  if (!kernel_of(GetParam().kernel).refusals(stage_, machine_).empty())
    GTEST_SKIP() << "skipped: not with this instruction set";
  Stage fewer = stage_;
  fewer.n = 2;
  const auto two = prepare(fewer), alone = prepare(fewer), three_alone = prepare(stage_);
  const std::vector<float> w = weights(3);
  set_weights(*alone, w.data());
  set_weights(*three_alone, w.data());
  {
    const auto three = prepare(stage_);
    ASSERT_EQ(three->packing(), two->packing());
    const auto packed = pack(*three, w);
    three->use(packed);
    two->use(packed);
    EXPECT_EQ(run(*three, stage_, 3), run(*three_alone, stage_, 3));
  }
  EXPECT_EQ(run(*two, fewer, 2), run(*alone, fewer, 2));
}

// Others replace them, in that plan only.
TEST_P(PackedWeightsOf, OthersReplaceThem) {
  if (!kernel_of(GetParam().kernel).refusals(stage_, machine_).empty())
    GTEST_SKIP() << "skipped: not with this instruction set";
  const auto one = prepare(stage_), other = prepare(stage_);
  const auto packed = pack(*one, weights(3));
  one->use(packed);
  other->use(packed);
  const std::vector<float> before = run(*one, stage_, 3);
  const std::vector<float> w = weights(4);
  set_weights(*other, w.data());
  EXPECT_EQ(run(*one, stage_, 3), before);
  EXPECT_NE(run(*other, stage_, 3), before);
}

TEST_P(PackedWeightsOf, AnotherLayoutHasAnotherName) {
  const Stage other = parse_stage(GetParam().other);
  if (!kernel_of(GetParam().kernel).refusals(other, machine_).empty())
    GTEST_SKIP() << "skipped: not with this instruction set";
  EXPECT_NE(prepare(other)->packing(), prepare(stage_)->packing());
}

INSTANTIATE_TEST_SUITE_P(Cpu, PackedWeightsOf, testing::ValuesIn(lines),
                         [](const auto& line) { return std::string(line.param.kernel); });

// A tile of direct decides how many filters lie side by side.
TEST(PackedWeights, TilesOfAnotherWidthDoNotShareThem) {
  const Machine machine = cpu_machine(1);
  const Stage stage = parse_stage("n3h9c16k128r3pad1");
  const Kernel& direct = kernel_of("direct");
  std::set<std::string> names;
  const std::vector<Tile> tiles = direct.tiles(stage, machine);
  for (const Tile& tile : tiles) names.insert(direct.prepare(stage, tile, machine)->packing());
  EXPECT_GT(tiles.size(), 1U);
  EXPECT_EQ(names.size(), tiles.size());
}

TEST(PackedWeights, OfEveryKernelOfOneStageAreTested) {
  std::set<std::string> tested, all;
  for (const Line& line : lines) tested.insert(line.kernel);
  for (const Kernel* kernel : kernel_table())
    if (kernel->device() == DeviceKind::cpu && dynamic_cast<const StageKernel*>(kernel))
      all.emplace(kernel->name());
  EXPECT_EQ(tested, all);
}

}  // namespace
}  // namespace convoy
