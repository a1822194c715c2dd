// Runs of one network at the same time: each has a context of its own, and the bits of a run alone.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "convoy/network.hpp"
#include "network/context.hpp"
#include "network/load.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

const std::string shipped_folder = source_path("models/fashion-scnn");

class AtOnce : public testing::TestWithParam<bool> {
 protected:
  static NetworkOptions options() {
    NetworkOptions options;
    options.threads = 1;
    options.batch = 4;
    options.spike_kernels = GetParam();
    return options;
  }
  void SetUp() override {
    std::uint32_t state = 1;
    for (std::uint8_t& pixel : pixels_)
      pixel = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  }
  std::vector<float> logits(Index n) const {
    std::vector<float> logits(static_cast<std::size_t>(n) * 10, -7.0F);
    network_
        .run(ConstTensorView::of(pixels_.data(), {n, 28, 28}),
             TensorView::of(logits.data(), {n, 10}), {})
        .or_throw();
    return logits;
  }

  const Network network_{shipped_folder, options()};
  std::vector<std::uint8_t> pixels_ = std::vector<std::uint8_t>(std::size_t{21} * 28 * 28);
};

TEST_P(AtOnce, EveryThreadGetsTheBitsOfARunAlone) {
  const std::vector<float> expected = logits(21);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        const Index n = 1 + (t * 7 + round) % 21;
        const std::vector<float> found = logits(n);
        if (std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) != 0) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(AtOnce, ProfilesAndTracesRunBesideRuns) {
  std::atomic<bool> end{false};
  std::thread other([&] {
    while (!end) logits(21);
  });
  const ConstTensorView images = ConstTensorView::of(pixels_.data(), {4, 28, 28});
  for (int round = 0; round < 5; ++round) {
    std::vector<double> seconds;
    EXPECT_TRUE(network_.profile(images, seconds).ok());
    EXPECT_EQ(network_.trace(images).size(), network_.layers().size());
  }
  end = true;
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Network, AtOnce, testing::Bool(),
                         [](const auto& kernels) { return kernels.param ? "kernels" : "plans"; });

TEST(Contexts, AreUsedAgainAndHaveAnEnd) {
  NetworkOptions options;
  options.threads = 1;
  const network::Program program =
      network::make_program(network::read_model(shipped_folder).graph, options);
  network::Contexts contexts(program);
  const network::Context* first = nullptr;
  {
    const auto taken = contexts.take({});
    first = &*taken;
  }
  std::vector<network::Contexts::Taken> all;
  for (std::size_t i = 0; i < network::Contexts::most; ++i) {
    all.push_back(contexts.take({}));
    ASSERT_TRUE(all.back());
  }
  EXPECT_EQ(&*all.front(), first);
  EXPECT_FALSE(contexts.take({}));
  all.pop_back();
  EXPECT_TRUE(contexts.take({}));
}

// Memory follows the images of the largest run, and a batch that nobody named the budget.
TEST(Contexts, TakeTheMemoryOfTheImagesThatCome) {
  NetworkOptions options;
  options.threads = 1;
  options.spike_kernels = false;
  const network::Program program =
      network::make_program(network::read_model(shipped_folder).graph, options);
  EXPECT_EQ(program.at_once, 256);
  // Workspaces are as large for one image.
  const Index ten = program.arena(10).bytes.value();
  EXPECT_LT(program.arena(1).bytes.value(), ten);
  EXPECT_LT(ten, program.arena(256).bytes.value());
}

}  // namespace
}  // namespace convoy
