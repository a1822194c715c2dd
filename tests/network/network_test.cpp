// Whole networks against PyTorch and SpikingJelly (tests/golden) and layer by layer against the
// reference.
#include "convoy/network.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "io/dataset.hpp"
#include "io/idx.hpp"
#include "io/npy.hpp"
#include "spike_rule.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

const std::string golden = source_path("tests/golden/");

ConstTensorView view_of(const io::Images& images, Index first, Index n) {
  const std::uint8_t* const data = images.data.data() + first * images.h * images.w * images.c;
  return {data, DType::u8, {n, images.h, images.w, images.c}};
}

struct Outputs {
  std::vector<float> logits;
  std::vector<std::int32_t> labels;
};

Outputs run(const Network& network, const io::Images& images, Index first, Index n) {
  Outputs out;
  out.logits.resize(static_cast<std::size_t>(n * network.classes()));
  out.labels.resize(static_cast<std::size_t>(n));
  network
      .run(view_of(images, first, n), TensorView::of(out.logits.data(), {n, network.classes()}),
           TensorView::of(out.labels.data(), {n}))
      .or_throw();
  return out;
}

/// The difference between the largest and the second largest output.
float margin(const Outputs& out, Index image, Index classes) {
  std::vector<float> row(out.logits.begin() + image * classes,
                         out.logits.begin() + (image + 1) * classes);
  std::sort(row.rbegin(), row.rend());
  return row[0] - row[1];
}

void expect_spikes(const Network& network, const std::string& folder,
                   const ConstTensorView& images) {
  const SpikeCheck check = check_spikes(network, folder, images);
  fmt::print("{}: {} spikes compared, {} excused in {} images, outputs within {:.1e}\n",
             folder.substr(folder.rfind('/') + 1), check.compared, check.excused,
             check.images.size(), check.logit_error);
  for (const std::string& line : check.wrong) ADD_FAILURE() << line;
  EXPECT_LE(check.logit_error, 1e-5);
}

class Fashion : public testing::TestWithParam<const char*> {
 protected:
  static const io::Images& images() {
    static const io::Images all = io::read_images(io::find_data("t10k-images-idx3-ubyte", ""));
    return all;
  }
};

TEST_P(Fashion, LabelsEqualPyTorchsOnTheWholeTestSet) {
  const std::string name = GetParam(), folder = name == "fashion-scnn"
                                                    ? source_path("models/fashion-scnn")
                                                    : golden + name;
  const Network network(folder);
  const Tensor expected = io::read_npy(golden + name + "/labels.npy");
  ASSERT_EQ(expected.elements(), images().n);
  const Outputs out = run(network, images(), 0, images().n);
  Index different = 0;
  for (Index i = 0; i < images().n; ++i) {
    if (out.labels[static_cast<std::size_t>(i)] == expected.data<std::uint8_t>()[i]) continue;
    ++different;
    const SpikeCheck check = check_spikes(network, folder, view_of(images(), i, 1));
    // PyTorch's own sums may cross a threshold where ours and the reference agree: then, too, a
    // membrane is next to it. check_spikes excuses only our differences, so ask for the margin too.
    EXPECT_TRUE(!check.images.empty() || margin(out, i, network.classes()) < 1e-5F)
        << "image " << i;
  }
  fmt::print("{}: {} of {} labels differ from PyTorch's\n", name, different, images().n);
  EXPECT_LE(different, 5);
}

TEST_P(Fashion, EverySpikeIsTheReferences) {
  const std::string name = GetParam(), folder = name == "fashion-scnn"
                                                    ? source_path("models/fashion-scnn")
                                                    : golden + name;
  const Network network(folder);
  EXPECT_EQ(network.layers()[0].kernel, "spike_chain");
  expect_spikes(network, folder, view_of(images(), 0, 150));
}

TEST_P(Fashion, PlansAloneGiveTheSameLabels) {
  const std::string name = GetParam(), folder = name == "fashion-scnn"
                                                    ? source_path("models/fashion-scnn")
                                                    : golden + name;
  NetworkOptions options;
  options.spike_kernels = false;
  const Network plans(folder, options), kernels(folder);
  for (const LayerReport& layer : plans.layers())
    EXPECT_EQ(layer.kernel.find("spike"), std::string::npos);
  const Outputs a = run(plans, images(), 0, 600), b = run(kernels, images(), 0, 600);
  Index different = 0;
  for (std::size_t i = 0; i < a.labels.size(); ++i) different += a.labels[i] != b.labels[i];
  EXPECT_LE(different, 1);
  expect_spikes(plans, folder, view_of(images(), 0, 20));
}

TEST_P(Fashion, BitsDoNotDependOnBatchPlaceOrThreads) {
  const std::string name = GetParam(), folder = name == "fashion-scnn"
                                                    ? source_path("models/fashion-scnn")
                                                    : golden + name;
  NetworkOptions one, two;
  one.threads = 1;
  two.threads = 2;
  const Network alone(folder, one), both(folder, two);
  const Outputs all = run(both, images(), 0, 300);
  EXPECT_EQ(run(alone, images(), 0, 300).logits, all.logits);
  for (const Index n : {1, 7, 64, 65}) {
    const Outputs part = run(both, images(), 33, n);
    for (std::size_t i = 0; i < part.logits.size(); ++i)
      ASSERT_EQ(part.logits[i], all.logits[i + 33 * 10]) << "n " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Fashion, testing::Values("fashion-scnn", "fashion-scnn-b"),
                         [](const auto& test) {
                           return std::string(test.param) == "fashion-scnn" ? "shipped" : "other";
                         });

class Golden : public testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(Golden, OutputsAreThoseOfPyTorch) {
  const auto [name, kernels] = GetParam();
  const std::string folder = golden + "networks/" + name;
  const io::Images images = io::read_images(
      folder + (std::string(name) == "scnn2" ? "/images.idx4-ubyte" : "/images.idx3-ubyte"));
  const auto labels = io::read_labels(folder + "/labels.idx1-ubyte");
  const Tensor logits = io::read_npy(folder + "/logits.npy");
  NetworkOptions options;
  options.spike_kernels = kernels;
  options.batch = 24;  // does not divide the number of images
  const Network network(folder, options);
  const Outputs out = run(network, images, 0, images.n);
  const bool spiking = network.text().steps > 1;
  std::set<Index> excused;
  if (spiking) {
    for (Index first = 0; first < images.n; first += 16) {
      const SpikeCheck check = check_spikes(network, folder, view_of(images, first, 16));
      for (const std::string& line : check.wrong) ADD_FAILURE() << line;
      for (const Index image : check.images) excused.insert(first + image);
    }
  }
  double largest = 0;
  for (Index i = 0; i < logits.elements(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(logits.data<float>()[i])));
  Index far = 0;
  for (Index i = 0; i < images.n; ++i) {
    bool near = true;
    for (Index k = 0; k < network.classes(); ++k) {
      const auto at = static_cast<std::size_t>(i * network.classes() + k);
      near &= std::abs(out.logits[at] - logits.data<float>()[at]) <= 1e-5 * largest;
    }
    far += !near;
    if (near || !spiking) {
      EXPECT_EQ(out.labels[static_cast<std::size_t>(i)], labels[static_cast<std::size_t>(i)])
          << "image " << i;
    }
  }
  fmt::print("{}: {} of {} images differ in a spike from PyTorch's, {} from the reference\n", name,
             far, images.n, excused.size());
  // A spike that flips moves an output by far more than rounding; without time nothing may.
  EXPECT_LE(far, spiking ? 1 : 0);
}

TEST_P(Golden, LayersAreThoseOfPyTorch) {
  const auto [name, kernels] = GetParam();
  const std::string folder = golden + "networks/" + name;
  const io::Images images = io::read_images(
      folder + (std::string(name) == "scnn2" ? "/images.idx4-ubyte" : "/images.idx3-ubyte"));
  NetworkOptions options;
  options.spike_kernels = kernels;
  const Network network(folder, options);
  const std::vector<Tensor> outputs = network.trace(view_of(images, 0, 4));
  Index compared = 0;
  for (std::size_t i = 0; i + 1 < outputs.size(); ++i) {
    const Tensor expected = io::read_npy(folder + "/" + network.layers()[i].name + ".y.npy");
    ASSERT_EQ(outputs[i].elements(), expected.elements());
    for (Index j = 0; j < expected.elements(); ++j, ++compared) {
      const double value = expected.view().dtype == DType::u8
                               ? expected.data<std::uint8_t>()[j]
                               : static_cast<double>(expected.data<float>()[j]);
      ASSERT_NEAR(outputs[i].data<float>()[j], value, 2e-5 * std::max(1.0, std::abs(value)))
          << network.layers()[i].name << " value " << j;
    }
  }
  EXPECT_GT(compared, 1000);
}

INSTANTIATE_TEST_SUITE_P(Networks, Golden,
                         testing::Combine(testing::Values("scnn2", "dense"), testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) ? "_kernels" : "_plans");
                         });

TEST(Network, RunRefusesWrongViewsAndWritesNothing) {
  const Network network(source_path("models/fashion-scnn"));
  std::vector<std::uint8_t> pixels(28 * 28 * 2);
  std::vector<std::int32_t> labels(2, -1);
  const TensorView out = TensorView::of(labels.data(), {2});
  const auto message = [&](const ConstTensorView& images, const TensorView& l) {
    return network.run(images, {}, l).message();
  };
  EXPECT_NE(message(TensorView::of(pixels.data(), {2, 28, 27, 1}), out)
                .find("expected u8[N,28,28,1] (or without the last axis)"),
            std::string::npos);
  EXPECT_NE(message({}, out).find("images"), std::string::npos);
  EXPECT_NE(message(TensorView::of(pixels.data(), {1, 28, 28}), out).find("i32[1]"),
            std::string::npos);
  EXPECT_EQ(labels, (std::vector<std::int32_t>{-1, -1}));
  EXPECT_TRUE(
      network
          .run(TensorView::of(pixels.data(), {0, 28, 28}), {}, TensorView::of(labels.data(), {0}))
          .ok());
  EXPECT_TRUE(network.run(TensorView::of(pixels.data(), {2, 28, 28}), {}, out).ok());
  EXPECT_EQ(labels[0], labels[1]);
  EXPECT_GE(labels[0], 0);
}

}  // namespace
}  // namespace convoy
