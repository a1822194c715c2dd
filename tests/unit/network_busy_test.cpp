// A network runs once at a time: what a second caller is told, whatever it asks for.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "convoy/network.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

class Busy : public testing::TestWithParam<bool> {
 protected:
  static NetworkOptions options() {
    NetworkOptions options;
    options.threads = 1;
    options.batch = 4;
    options.spike_kernels = GetParam();
    return options;
  }
  /// Runs of many images in another thread until `done` says so, or half a minute is over.
  template <class Done>
  void beside_runs(const Done& done) const {
    std::atomic<bool> end{false};
    std::thread other([&] {
      const std::vector<std::uint8_t> many(std::size_t{200} * 28 * 28, 9);
      while (!end) {
        const Status status = network_.run(ConstTensorView::of(many.data(), {200, 28, 28}), {}, {});
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::busy) << status.message();
      }
    });
    const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    bool seen = false;
    while (!seen && std::chrono::steady_clock::now() < last) seen = done();
    end = true;
    other.join();
    EXPECT_TRUE(seen) << "never busy";
  }

  const Network network_{source_path("models/fashion-scnn"), options()};
  std::vector<std::uint8_t> pixels_ = std::vector<std::uint8_t>(28 * 28, 200);
  const TensorView image_ = TensorView::of(pixels_.data(), {1, 28, 28});
};

TEST_P(Busy, ASecondRunWritesNothingAndSaysSo) {
  beside_runs([&] {
    std::int32_t label = -7;
    const Status status = network_.run(image_, {}, TensorView::of(&label, {1}));
    if (status.ok()) return false;
    EXPECT_EQ(status.code(), StatusCode::busy);
    EXPECT_NE(status.message().find("is running already"), std::string::npos) << status.message();
    EXPECT_EQ(label, -7);
    return true;
  });
  std::int32_t label = -7;  // and afterwards it is free
  network_.run(image_, {}, TensorView::of(&label, {1})).or_throw();
  EXPECT_GE(label, 0);
}

TEST_P(Busy, ASecondProfileMeasuresNothingAndSaysSo) {
  beside_runs([&] {
    std::vector<double> seconds;
    const Status status = network_.profile(image_, seconds);
    if (status.ok()) return false;
    EXPECT_EQ(status.code(), StatusCode::busy);
    EXPECT_EQ(seconds, std::vector<double>(network_.layers().size(), 0.0));
    return true;
  });
}

TEST_P(Busy, ATraceMeanwhileThrows) {
  beside_runs([&] {
    try {
      EXPECT_EQ(network_.trace(image_).size(), network_.layers().size());
      return false;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("is running already"), std::string::npos)
          << error.what();
      return true;
    }
  });
}

// A status of its own comes before: what is wrong with the operands is said even then.
TEST_P(Busy, WrongOperandsAreToldFirst) {
  beside_runs([&] {
    EXPECT_EQ(network_.run(TensorView::of(pixels_.data(), {1, 14, 28}), {}, {}).code(),
              StatusCode::invalid_operand);
    return network_.run(image_, {}, {}).code() == StatusCode::busy;
  });
}

INSTANTIATE_TEST_SUITE_P(Network, Busy, testing::Bool(),
                         [](const auto& kernels) { return kernels.param ? "kernels" : "plans"; });

}  // namespace
}  // namespace convoy
