// tune() of a network: every stage once, the cache written once, and what a network then uses.
#include "network/tune_network.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "convoy/network.hpp"
#include "network/program.hpp"
#include "plan/tuning_cache.hpp"

namespace convoy {
namespace {

constexpr const char* equal_layers =
    "input f32:h6c4\n"
    "conv1 k8r3pad1+bias+relu\n"
    "conv2 k8r3pad1+bias+relu\n"
    "conv3 k8r3pad1+bias+relu\n"
    "flatten\n"
    "fc k5+bias\n";
// The layers of models/fashion-scnn, which one kernel runs.
constexpr const char* spiking_chain =
    "input u8:h28c1 mean(0.5) std(0.5)\n"
    "steps 2\n"
    "conv1 k8r5+bias+if(1)+max2\n"
    "conv2 k16r5+bias+if(1)+max2\n"
    "flatten\n"
    "fc1 k128+bias+if(1)\n"
    "fc2 k96+bias+if(1)\n"
    "fc3 k10+bias\n";

/// A folder of its own for the cache, gone at the end; CONVOY_CACHE points there meanwhile.
class TuneNetwork : public testing::Test {
 protected:
  TuneNetwork() {
    std::string pattern = testing::TempDir() + "convoy-tune-network-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("CONVOY_CACHE", folder_.c_str(), 1);
  }
  ~TuneNetwork() override {
    unsetenv("CONVOY_CACHE");
    std::filesystem::remove_all(folder_);
  }
  std::string path() const { return folder_ + "/tuning.json"; }
  std::size_t rows() const {
    std::string warning;
    const std::size_t count = load_tuning_cache(path(), warning).size();
    EXPECT_EQ(warning, "");
    return count;
  }

  /// A network with small integers as weights.
  static Network network(const char* text, Index batch) {
    const NetworkText parsed = parse_network(text, "test");
    std::map<std::string, std::vector<float>> numbers;
    NetworkParameters views;
    const auto add = [&](const std::string& name, const std::vector<Index>& shape) {
      std::size_t count = 1;
      for (const Index size : shape) count *= static_cast<std::size_t>(size);
      std::vector<float>& all = numbers[name];
      for (std::size_t i = 0; i < count; ++i) all.push_back(static_cast<float>(i * 7 % 5) - 2);
      views[name] = ConstTensorView(all.data(), DType::f32, shape);
    };
    for (const NetworkLayer& layer : parsed.layers) {
      if (layer.flatten) continue;
      const Stage& stage = layer.stage;
      add(layer.name + ".weight", {stage.k, stage.c / stage.groups, stage.r, stage.s});
      add(layer.name + ".bias", {stage.k});
      if (stage.h == 1 && stage.w == 1)
        views[layer.name + ".weight"] =
            ConstTensorView(numbers[layer.name + ".weight"].data(), DType::f32, {stage.k, stage.c});
    }
    return {parsed, views, {.threads = 1, .batch = batch}};
  }
  /// How many of the network's kernels were chosen by a measurement of this machine.
  static std::size_t tuned(const Network& network) {
    std::size_t count = 0;
    for (const network::Step& step : program_of(network).steps)
      if (const auto* kernel = std::get_if<network::KernelStep>(&step))
        count += kernel->bound->selection().tuned.has_value() ? 1U : 0U;
    return count;
  }
  static std::vector<float> logits(const Network& network, Index values) {
    std::vector<float> x(static_cast<std::size_t>(3 * values)),
        y(static_cast<std::size_t>(3 * network.classes()));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 11 % 9) - 4;
    network
        .run(TensorView::of(x.data(), {3, 6, 6, values / 36}),
             TensorView::of(y.data(), {3, network.classes()}), {})
        .or_throw();
    return y;
  }

  std::string folder_;
};

TEST_F(TuneNetwork, MeasuresEqualStagesOnce) {
  const Network before = network(equal_layers, 4);
  EXPECT_EQ(tuned(before), 0U);
  const NetworkTuneResult result = tune(before, {}, 0.002);
  ASSERT_EQ(result.stages.size(), 3U);
  EXPECT_EQ(result.saved_to, path());
  EXPECT_EQ(result.stages[0].layers, (std::vector<std::string>{"conv1"}));
  EXPECT_EQ(result.stages[1].layers, (std::vector<std::string>{"conv2", "conv3"}));
  EXPECT_EQ(result.stages[1].stage, "n4h6w6c8k8r3pad1+bias+relu");
  EXPECT_EQ(result.stages[2].layers, (std::vector<std::string>{"fc"}));
  for (const TunedStage& stage : result.stages) {
    EXPECT_EQ(stage.batch, 4);
    EXPECT_NE(stage.arithmetic, "");
    ASSERT_FALSE(stage.rows.empty());
    EXPECT_TRUE(stage.rows.front().chosen);
  }
  EXPECT_EQ(rows(), 3U);
  const Network after = network(equal_layers, 4);
  EXPECT_EQ(tuned(after), 4U);  // of four layers
  EXPECT_EQ(after.layers()[1].kernel, result.stages[1].rows.front().kernel);
  EXPECT_EQ(logits(before, 144), logits(after, 144));
  // Another batch has other stages.
  EXPECT_EQ(tuned(network(equal_layers, 2)), 0U);
}

TEST_F(TuneNetwork, MeasuresTheBatchesThatAreAsked) {
  const Network one = network(equal_layers, 4);
  std::vector<std::string> texts;
  const NetworkTuneResult result = network::tune_network(
      program_of(one), {1, 3, 1}, 0.002, true,
      [&](std::size_t number, std::size_t count, const std::string& text) {
        EXPECT_EQ(number, texts.size() + 1);
        EXPECT_EQ(count, 6U);
        EXPECT_FALSE(std::filesystem::exists(path())) << "the cache is written at the end";
        texts.push_back(text);
      });
  ASSERT_EQ(result.stages.size(), 6U);
  EXPECT_EQ(texts[3], "n3h6w6c4k8r3pad1+bias+relu");
  EXPECT_EQ(result.stages[3].batch, 3);
  EXPECT_EQ(rows(), 6U);
  EXPECT_EQ(tuned(network(equal_layers, 3)), 4U);
  EXPECT_EQ(tuned(network(equal_layers, 4)), 0U);
}

TEST_F(TuneNetwork, MeasuresAChainAsOne) {
  const Network before = network(spiking_chain, 8);
  const NetworkTuneResult result = tune(before, {}, 0.002);
  ASSERT_EQ(result.stages.size(), 1U);
  EXPECT_EQ(result.stages[0].layers,
            (std::vector<std::string>{"conv1", "conv2", "fc1", "fc2", "fc3"}));
  EXPECT_EQ(result.stages[0].stage.substr(0, 12), "constants > ");
  EXPECT_EQ(result.stages[0].rows.front().kernel, "spike_chain");
  EXPECT_NE(result.stages[0].rows.back().refused, "");
  EXPECT_EQ(rows(), 1U);
  EXPECT_EQ(tuned(network(spiking_chain, 8)), 1U);
}

TEST_F(TuneNetwork, SavesNothingUnlessAsked) {
  const NetworkTuneResult result = tune(network(equal_layers, 1), {}, 0.001, false);
  EXPECT_EQ(result.stages.size(), 3U);
  EXPECT_EQ(result.saved_to, "");
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(TuneNetwork, SaysWhatIsWrong) {
  Network one = network(equal_layers, 1);
  const auto said = [&](const std::vector<Index>& batches, double seconds) -> std::string {
    try {
      tune(one, batches, seconds);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(said({1, 0}, 0.001).find("found the batch 0, expected 1 to 2147483647"),
            std::string::npos);
  EXPECT_NE(said({Index{1} << 31}, 0.001).find("expected 1 to 2147483647"), std::string::npos);
  EXPECT_NE(said({}, 0).find("seconds"), std::string::npos) << said({}, 0);
  EXPECT_FALSE(std::filesystem::exists(path()));
  std::filesystem::remove_all(folder_);
  std::ofstream(folder_) << "no folder";
  EXPECT_NE(said({}, 0.001).find("CONVOY_CACHE"), std::string::npos);
  const Network moved = std::move(one);
  EXPECT_NE(said({}, 0.001).find("was moved from"), std::string::npos);
}

}  // namespace
}  // namespace convoy
