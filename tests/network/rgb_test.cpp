// models/rgb-scnn on Fashion-MNIST's test images in three channels, against PyTorch's labels
// (tests/golden/rgb-scnn).
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "convoy/error.hpp"
#include "convoy/network.hpp"
#include "io/dataset.hpp"
#include "io/idx.hpp"
#include "io/npy.hpp"
#include "spike_rule.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

const std::string model = source_path("models/rgb-scnn");
constexpr Index count = 600, side = 32;

/// As models/rgb-scnn/README.md has it: the image in the middle of 32x32, and the absolute
/// differences of the neighbours at the left and right, above and below, with 0 outside.
std::vector<std::uint8_t> edges(const io::Images& images, Index n) {
  std::vector<std::uint8_t> made;
  made.reserve(static_cast<std::size_t>(n * side * side * 3));
  for (Index i = 0; i < n; ++i) {
    const auto at = [&](Index y, Index x) {
      const Index row = y - 2, column = x - 2;
      const bool inside = row >= 0 && row < images.h && column >= 0 && column < images.w;
      return inside ? int{images.data[static_cast<std::size_t>((i * images.h + row) * images.w +
                                                               column)]}
                    : 0;
    };
    for (Index y = 0; y < side; ++y)
      for (Index x = 0; x < side; ++x)
        for (const int value : {at(y, x), std::abs(at(y, x + 1) - at(y, x - 1)),
                                std::abs(at(y + 1, x) - at(y - 1, x))})
          made.push_back(static_cast<std::uint8_t>(value));
  }
  return made;
}

class Rgb : public testing::Test {
 protected:
  void SetUp() override {
    try {
      const io::Images images = io::read_images(io::find_data("t10k-images-idx3-ubyte", ""));
      pixels_ = edges(images, count);
      right_ = io::read_labels(io::find_data("t10k-labels-idx1-ubyte", ""));
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  TensorView images(Index n) { return TensorView::of(pixels_.data(), {n, side, side, 3}); }

  std::vector<std::uint8_t> pixels_, right_;
};

TEST_F(Rgb, LabelsEqualPyTorchs) {
  const Tensor expected = io::read_npy(source_path("tests/golden/rgb-scnn/labels.npy"));
  for (const bool kernels : {true, false}) {
    NetworkOptions options;
    options.spike_kernels = kernels;
    const Network network(model, options);
    std::vector<std::int32_t> labels(count);
    network.run(images(count), {}, TensorView::of(labels.data(), {count})).or_throw();
    Index different = 0, right = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      different += labels[i] != expected.data<std::uint8_t>()[i];
      right += labels[i] == right_[i];
    }
    fmt::print("{} of {} right, {} labels differ from PyTorch's\n", right, count, different);
    // A membrane next to its threshold may tip either way.
    EXPECT_LE(different, 1);
    EXPECT_GE(right, count * 92 / 100);
  }
}

TEST_F(Rgb, EverySpikeIsTheReferences) {
  const Network network(model);
  const SpikeCheck check = check_spikes(network, model, images(24));
  for (const std::string& line : check.wrong) ADD_FAILURE() << line;
  EXPECT_GT(check.compared, 0);
  EXPECT_LE(check.logit_error, 1e-5);
}

}  // namespace
}  // namespace convoy
