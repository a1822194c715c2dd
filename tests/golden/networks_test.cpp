// Golden networks: model folders against what PyTorch and SpikingJelly computed. golden_networks.py
// makes the files.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "convoy/network.hpp"
#include "io/dataset.hpp"
#include "io/idx.hpp"
#include "io/npy.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

Network load(const std::string& folder, bool spike_kernels) {
  NetworkOptions options;
  options.threads = 2;
  options.spike_kernels = spike_kernels;
  return Network(folder, options);
}

std::vector<std::int32_t> classify(const Network& network, io::Images& images,
                                   std::vector<float>* logits = nullptr) {
  std::vector<std::int32_t> labels(
      images.data.size() / static_cast<std::size_t>(images.h * images.w * images.c), -1);
  TensorView logit_view;
  if (logits) {
    logits->assign(labels.size() * static_cast<std::size_t>(network.classes()), NAN);
    logit_view = TensorView::of(logits->data(), {images.n, network.classes()});
  }
  const Status status =
      network.run(ConstTensorView::of(images.data.data(), {images.n, images.h, images.w, images.c}),
                  logit_view, TensorView::of(labels.data(), {images.n}));
  EXPECT_TRUE(status.ok()) << status.message();
  return labels;
}

class GoldenNetwork : public testing::TestWithParam<std::tuple<const char*, bool>> {};

// The images are chosen so that no spike and no label is a close call: all must be equal.
TEST_P(GoldenNetwork, LabelsLogitsAndLayers) {
  const auto [name, spike_kernels] = GetParam();
  const std::string folder = source_path("tests/golden/networks/") + name;
  const Network network = load(folder, spike_kernels);
  const bool colour = network.text().c == 3;
  io::Images images =
      io::read_images(folder + (colour ? "/images.idx4-ubyte" : "/images.idx3-ubyte"));
  const std::vector<std::uint8_t> want = io::read_labels(folder + "/labels.idx1-ubyte");
  std::vector<float> logits;
  const std::vector<std::int32_t> labels = classify(network, images, &logits);
  EXPECT_EQ(labels, std::vector<std::int32_t>(want.begin(), want.end()));

  const Tensor want_logits = io::read_npy(folder + "/logits.npy");
  ASSERT_EQ(static_cast<Index>(logits.size()), want_logits.elements());
  for (std::size_t i = 0; i < logits.size(); ++i)
    ASSERT_NEAR(logits[i], want_logits.data<float>()[i], 1e-4) << "logit " << i;

  constexpr Index kept = 4;
  const std::vector<Tensor> layers =
      network.trace(ConstTensorView::of(images.data.data(), {kept, images.h, images.w, images.c}));
  std::vector<std::string> names;
  for (const NetworkLayer& layer : network.text().layers)
    if (!layer.flatten) names.push_back(layer.name);
  ASSERT_EQ(layers.size(), names.size());
  ASSERT_EQ(names.size(), 4U);
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    const Tensor golden = io::read_npy(folder + "/" + names[i] + ".y.npy");
    ASSERT_EQ(layers[i].elements(), golden.elements()) << names[i];
    const bool spikes = golden.view().dtype == DType::u8;
    for (Index j = 0; j < golden.elements(); ++j) {
      const float value =
          spikes ? static_cast<float>(golden.data<std::uint8_t>()[j]) : golden.data<float>()[j];
      ASSERT_NEAR(layers[i].data<float>()[j], value, spikes ? 0 : 1e-4)
          << names[i] << ", element " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenNetwork,
                         testing::Combine(testing::Values("scnn2", "dense"), testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) ? "_spike_kernels" : "_plans");
                         });

class GoldenFashion : public testing::TestWithParam<std::tuple<const char*, bool>> {};

// Real images hold close calls: of 10,000 labels at most 5 may differ from PyTorch's fp32.
TEST_P(GoldenFashion, LabelsAsPyTorch) {
  const auto [name, spike_kernels] = GetParam();
  const std::string golden = source_path("tests/golden/") + name;
  const std::string model =
      std::string(name) == "fashion-scnn" ? source_path("models/fashion-scnn") : golden;
  const Network network = load(model, spike_kernels);
  io::Images images = io::read_images(io::find_data("t10k-images-idx3-ubyte", ""));
  const std::vector<std::int32_t> labels = classify(network, images);
  const Tensor want = io::read_npy(golden + "/labels.npy");
  ASSERT_EQ(want.elements(), 10000);
  ASSERT_EQ(labels.size(), 10000U);
  int differ = 0;
  for (std::size_t i = 0; i < labels.size(); ++i)
    differ += labels[i] != want.data<std::uint8_t>()[i];
  EXPECT_LE(differ, 5);
  RecordProperty("labels that differ", differ);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFashion,
                         testing::Combine(testing::Values("fashion-scnn", "fashion-scnn-b"),
                                          testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) == std::string("fashion-scnn")
                                                  ? "shipped"
                                                  : "other") +
                                  (std::get<1>(test.param) ? "_spike_kernels" : "_plans");
                         });

}  // namespace
}  // namespace convoy
