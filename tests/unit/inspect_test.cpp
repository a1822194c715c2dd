// Networks taken apart: names of operators, what each of them computes, and the rules by which
// values are compared.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "convoy/error.hpp"
#include "inspect/check.hpp"
#include "inspect/comparison.hpp"
#include "inspect/execute.hpp"
#include "inspect/operators.hpp"

namespace convoy::inspect {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Weights that differ from one another, and spikes that are neither all nor none.
class SomeWeights : public io::ParameterSource {
 public:
  std::vector<float> read(const std::string& parameter, const std::vector<Index>& shape,
                          const std::string&) override {
    Index count = 1;
    for (const Index size : shape) count *= size;
    std::vector<float> numbers(static_cast<std::size_t>(count), 0.125F);
    if (parameter.ends_with(".weight"))
      for (Index i = 0; i < count; ++i)
        numbers[static_cast<std::size_t>(i)] = static_cast<float>(i * 7 % 11 - 4) / 16.0F;
    return numbers;
  }
  bool has(const std::string& parameter) override { return parameter.ends_with(".weight"); }
  std::string name_of(const std::string& parameter) const override { return parameter; }
};

Operators operators_of_text(const std::string& lines) {
  network::Model model{parse_network(lines, "test"), {}};
  SomeWeights weights;
  model.graph = network::read_graph(model.text, weights);
  return operators_of(std::move(model));
}

std::string names_of(const Operators& operators) {
  std::string names;
  for (const Operator& op : operators.all) names += op.name + " ";
  return names + operators.mean;
}

TEST(Operators, AreNamedAfterTheLayerOrWhatTheyDo) {
  EXPECT_EQ(names_of(operators_of_text("input u8:h28c1\nsteps 2\nconv1 k2r5+if(1)+max2\n"
                                       "conv2 k2r5+if(1)+max2\nflatten\nfc1 k4+if(1)\nfc2 k3\n")),
            "conv1 if1 pool1 conv2 if2 pool2 fc1 if3 fc2 mean");
  EXPECT_EQ(names_of(operators_of_text("input u8:h9c1\na k2r1+relu\nb k2r1+relu6\nc k2r1+leaky(2)\n"
                                       "d k2r1+clip(0,1)+max2\ne k2r1\n")),
            "a relu1 b relu2 c leaky1 d clip1 pool1 e ");
  // Names that layers have are left out.
  EXPECT_EQ(
      names_of(operators_of_text("input u8:h9c1\nsteps 3\nif1 k2r1+if(1)\nmean k2r1+lif(2,1)\n"
                                 "pool1 k2r1+max2\n")),
      "if1 if2 mean lif1 pool1 pool2 mean1");
}

TEST(Operators, OfALayerGiveWhatTheLayerGives) {
  const Operators operators = operators_of_text(
      "input u8:h11w9c2\nsteps 3\nconv1 k3r3+bias+if(0.5)+max2\na k2r2+lif(2,0.25)+soft+max3s1p1\n"
      "b k4r2+bias from(conv1)\nc k3r1+relu+max2 from(b)\nd k3r1+clip(0,0.5)+max2 from(a)\n"
      "both k5r1+bias from(c,d)\n");
  std::vector<std::uint8_t> pixels(2 * 11 * 9 * 2);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 37);
  Threads threads(1);
  const Tensor x =
      first_input(operators.text, TensorView::of(pixels.data(), {2, 11, 9, 2}), threads);
  OracleReference oracle(threads);
  const std::vector<Output> all = all_by_reference(operators, x, oracle);
  for (const Operator& block : operators.blocks) {
    Tensor joined;
    const ConstTensorView input = input_of(block, all, x, joined);
    const Output expected = oracle.run(block, operators.steps(), 2, input);
    const Output planned = Planned(block, operators.steps(), 2, {}).run(input);
    const Tensor& parts = all[block.gives].y;
    ASSERT_EQ(parts.elements(), expected.y.elements()) << block.name;
    double largest = 0;
    for (Index i = 0; i < parts.elements(); ++i) {
      EXPECT_EQ(parts.data<float>()[i], expected.y.data<float>()[i]) << block.name << " " << i;
      EXPECT_NEAR(parts.data<float>()[i], planned.y.data<float>()[i], 1e-5) << block.name;
      largest = std::max(largest, std::abs(static_cast<double>(parts.data<float>()[i])));
    }
    EXPECT_GT(largest, 0) << block.name;
  }
}

TEST(Check, FindsABlockThatIsNotWhatItsPartsAre) {
  Operators operators = operators_of_text(
      "input u8:h6c1\nsteps 2\nconv1 k3r3+bias+if(0.5)+max2\nflatten\nfc1 k4+bias\n");
  std::vector<std::uint8_t> pixels(5 * 6 * 6);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 37);
  const TensorView images = TensorView::of(pixels.data(), {5, 6, 6});
  const auto checked = [&](const std::string& name) {
    CheckOptions options;
    options.checked = {name};
    return check(operators, images, options);
  };
  EXPECT_TRUE(checked("all").passed());
  EXPECT_TRUE(checked("fuse1").passed());
  EXPECT_TRUE(checked("fuse2").passed());
  operators.blocks[0].stage.act = integrate_fire(1.5F);
  const CheckReport spikes = checked("fuse1");
  EXPECT_FALSE(spikes.passed());
  EXPECT_GT(spikes.operators.front().result.off, 0U);
  EXPECT_GT(spikes.operators.front().result.first.distance, 1e-5);
  operators.blocks[1].bias = {0, 0, 0, 100};
  const CheckReport labels = checked("fuse2");
  EXPECT_EQ(labels.predictions.ours, (std::vector<std::int32_t>(5, 3)));
  EXPECT_GT(labels.predictions.differing.size(), labels.predictions.excused.size());
  EXPECT_FALSE(labels.passed());
}

TEST(Operators, ByNamesThatAreNotThere) {
  const Operators operators = operators_of_text("input u8:h9c1\na k2r1+relu\n");
  EXPECT_NO_THROW(expect_known(operators, {"a", "relu1", "fuse1", "all", "none"}));
  EXPECT_THROW(expect_known(operators, {"a", "fuse2"}), Error);
}

Comparison compare_flat(std::vector<float> got, std::vector<float> expected,
                        const SpikeRule* spikes = nullptr) {
  const auto n = static_cast<Index>(got.size());
  return compare(got, expected, {1, 1, 1, 1, n}, {}, spikes, 2);
}

TEST(Comparison, MeasuresByTheLargestReference) {
  const Comparison c = compare_flat({1000, 0.005F, 0.02F, 5}, {1000, 0, 0, 5});
  EXPECT_EQ(c.off, 1U);
  EXPECT_EQ(c.first.at, 2U);
  EXPECT_NEAR(c.max_error, 0.02, 1e-8);
  EXPECT_NEAR(c.mean_error, 0.025 / 4, 1e-8);
  EXPECT_NEAR(c.relative_error, 2e-5, 1e-10);
  ASSERT_EQ(c.worst.size(), 2U);
  EXPECT_EQ(c.worst[1].at, 1U);
}

TEST(Comparison, NaNAndInfinityAgreeWithThemselvesAlone) {
  EXPECT_EQ(compare_flat({nan, infinity, -infinity}, {nan, infinity, -infinity}).off, 0U);
  const Comparison c = compare_flat({nan, 1, infinity, infinity}, {1, nan, 1, -infinity});
  EXPECT_EQ(c.off, 4U);
  EXPECT_EQ(c.not_finite, 4U);
  EXPECT_EQ(c.max_error, 0);
}

TEST(Comparison, ASpikeMayDifferFromTheStepOnWhereAMembraneIsAtTheThreshold) {
  // Two steps of 2x2 neurons, pooled. Only the last neuron is ever near its threshold of 2.
  std::vector<float> membrane = {0, 0.5F, 0, 2.00001F, 0, 1, 0, 0.5F};
  SpikeRule rule{2, membrane, parse_stage("n1h2c1k1r1+max2")};
  const auto off = [&](std::vector<float> got) {
    const std::vector<float> expected = {1, 0};
    return compare(got, expected, {2, 1, 1, 1, 1}, {}, &rule, 1).off;
  };
  EXPECT_EQ(off({1, 0}), 0U);
  EXPECT_EQ(off({0, 0}), 0U);
  EXPECT_EQ(off({0, 1}), 0U);  // another spike then, another membrane now
  EXPECT_EQ(off({0.5F, 0}), 1U) << "no spike";
  EXPECT_EQ(off({nan, 0}), 1U);
  membrane[3] = 2.0001F;
  EXPECT_EQ(off({0, 0}), 1U);
  membrane[3] = 0;
  membrane[5] = 2;  // in the second step
  EXPECT_EQ(off({0, 0}), 1U);
  EXPECT_EQ(off({1, 1}), 0U);
  rule.membrane = {};
  EXPECT_EQ(off({1, 1}), 1U);
}

TEST(Comparison, PyTorchsOrderIsSeen) {
  const std::vector<float> expected = {1, 2, 3, 4, 5, 6}, got = {1, 3, 5, 2, 4, 6};
  EXPECT_TRUE(agrees_channels_first(got, expected, {1, 1, 1, 3, 2}, {}));
  EXPECT_FALSE(agrees_channels_first(expected, expected, {1, 1, 1, 3, 2}, {}));
}

}  // namespace
}  // namespace convoy::inspect
