// Normalised f32 images for a network of u8 images: the bits of the pixels where they are a pixel's
// values, those of a network that reads f32 elsewhere, image by image.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "convoy/network.hpp"
#include "convoy/pinned.hpp"
#include "count_allocations.hpp"
#include "network/convert.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

struct Outputs {
  std::vector<float> logits;
  std::vector<std::int32_t> labels;
  bool operator==(const Outputs&) const = default;
};

Outputs run(const Network& network, const ConstTensorView& images) {
  const Index n = images.shape[0];
  Outputs out{std::vector<float>(static_cast<std::size_t>(n * network.classes())),
              std::vector<std::int32_t>(static_cast<std::size_t>(n))};
  network
      .run(images, TensorView::of(out.logits.data(), {n, network.classes()}),
           TensorView::of(out.labels.data(), {n}))
      .or_throw();
  return out;
}

class Values : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const std::vector<float> table =
        network::values_of_pixels({network_.text().mean, network_.text().std}, network_.text().c);
    std::mt19937 random(9);
    for (std::size_t i = 0; i < pixels_.size(); ++i) {
      pixels_[i] = static_cast<std::uint8_t>(random() % 256);
      values_[i] = table[pixels_[i]];
    }
  }
  static NetworkOptions options() {
    NetworkOptions options;
    options.batch = 100;
    options.spike_kernels = GetParam();
    return options;
  }
  ConstTensorView pixels(Index n) const { return ConstTensorView::of(pixels_.data(), {n, 28, 28}); }
  ConstTensorView values(Index n) const {
    return ConstTensorView::of(values_.data(), {n, 28, 28, 1});
  }

  static constexpr Index most = 1400;  // more than are turned back at once
  const std::string folder_ = source_path("models/fashion-scnn");
  const Network network_{folder_, options()};
  std::vector<std::uint8_t> pixels_ = std::vector<std::uint8_t>(most * 784);
  std::vector<float> values_ = std::vector<float>(most * 784);
};

TEST_P(Values, OfPixelsGiveTheirBits) {
  for (const Index n : {Index{0}, Index{1}, Index{7}, most})
    EXPECT_EQ(run(network_, values(n)), run(network_, pixels(n))) << n;
}

TEST_P(Values, OthersRunByThemselves) {
  const Index n = 30;
  const Outputs expected = run(network_, pixels(n));
  for (const Index odd : {0, 4, 5, 29})
    for (Index i = 0; i < 784; i += 3) values_[static_cast<std::size_t>(odd * 784 + i)] = 0.3F;
  const Outputs got = run(network_, values(n));
  EXPECT_EQ(run(network_, values(n)), got);
  for (Index i = 0; i < n; ++i) {
    const Outputs alone = run(network_, ConstTensorView::of(values_.data() + i * 784, {1, 28, 28}));
    const bool odd = i == 0 || i == 4 || i == 5 || i == 29;
    for (Index k = 0; k < 10; ++k) {
      const auto at = static_cast<std::size_t>(i * 10 + k);
      EXPECT_EQ(got.logits[at], alone.logits[static_cast<std::size_t>(k)]) << i;
      if (!odd) {
        EXPECT_EQ(got.logits[at], expected.logits[at]) << i;
      }
    }
  }
  EXPECT_NE(got.logits, expected.logits);
}

TEST_P(Values, MayBeAnyNumber) {
  values_[0] = std::numeric_limits<float>::quiet_NaN();
  values_[784] = std::numeric_limits<float>::infinity();
  values_[2 * 784] = -0.0F;
  const Outputs got = run(network_, values(4)), expected = run(network_, pixels(4));
  for (std::size_t k = 30; k < 40; ++k) EXPECT_EQ(got.logits[k], expected.logits[k]);
}

TEST_P(Values, AreNotTracedAndNotOfOtherTypes) {
  EXPECT_THROW(network_.trace(values(2)), Error);
  std::vector<std::int32_t> numbers(784);
  const Status status = network_.run(ConstTensorView::of(numbers.data(), {1, 28, 28}), {}, {});
  EXPECT_EQ(status.code(), StatusCode::invalid_operand);
  EXPECT_NE(status.message().find("or f32 of that shape"), std::string::npos) << status.message();
}

TEST_P(Values, OfPixelsTakeNoMemoryOnceThereIsSome) {
  if (!counts_allocations) GTEST_SKIP() << "a sanitizer has malloc for itself";
  NetworkOptions options = Values::options();
  options.threads = 1;
  const Network network(folder_, options);
  std::vector<std::int32_t> labels(most);
  const ConstTensorView images = values(most);
  const TensorView there = TensorView::of(labels.data(), {most});
  network.run(images, {}, there).or_throw();
  const long before = allocations();
  const bool ok = network.run(images, {}, there).ok();
  EXPECT_EQ(allocations(), before);
  EXPECT_TRUE(ok);
}

TEST_P(Values, WarmChangesNothing) {
  const Outputs expected = run(network_, pixels(9));
  network_.warm(300);
  EXPECT_EQ(run(network_, pixels(9)), expected);
  EXPECT_THROW(network_.warm(0), Error);
}

INSTANTIATE_TEST_SUITE_P(Network, Values, testing::Bool(),
                         [](const auto& kernels) { return kernels.param ? "kernels" : "plans"; });

TEST(PinnedTensor, IsOrdinaryMemoryWithoutAGpu) {
  PinnedTensor tensor(DType::u8, {3, 5}, {});
  EXPECT_EQ(describe(tensor), "u8[3,5] on cpu, contiguous");
  for (int i = 0; i < 15; ++i) EXPECT_EQ(tensor.data<std::uint8_t>()[i], 0);
}

// Images of other values than pixels run through layers of their own, whose time counts too.
TEST(NetworkProfile, CountsTheTimeOfImagesThatAreNoPixels) {
  const Network network(source_path("models/fashion-scnn"), {.threads = 1});
  Tensor values(DType::f32, {5, 28, 28, 1});
  for (Index i = 0; i < values.elements(); ++i)
    values.data<float>()[i] = 0.123F * static_cast<float>(i % 17);
  std::vector<double> seconds;
  std::vector<LayerSpan> spans;
  network.profile(values, seconds, &spans).or_throw();
  double all = 0;
  for (const double one : seconds) all += one;
  EXPECT_GT(all, 0);
  Index images = 0;
  for (const LayerSpan& span : spans)
    if (span.first == 0) images += span.images;
  EXPECT_EQ(images, 10);  // as if they were pixels, and then by their values
}

}  // namespace
}  // namespace convoy
