// Networks that are made in memory: the bits of the model folder, and the same refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "convoy/network.hpp"
#include "io/weights.hpp"
#include "math/half.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

const std::string shipped = source_path("models/fashion-scnn");

/// The shipped network, written by hand.
NetworkText by_hand() {
  const Stage conv{.r = 5, .bias = true, .act = integrate_fire(1), .pool = max_pool(2)},
      linear{.bias = true, .act = integrate_fire(1)};
  NetworkText text{.h = 28, .c = 1, .mean = {0.5F}, .std = {0.5F}, .steps = 2};
  text.layers = {{.name = "conv1", .stage = conv},
                 {.name = "conv2", .stage = conv},
                 {.flatten = true},
                 {.name = "fc1", .stage = linear},
                 {.name = "fc2", .stage = linear},
                 {.name = "fc3", .stage = {.bias = true}}};
  const Index filters[] = {8, 16, 0, 128, 96, 10};
  for (std::size_t i = 0; i < text.layers.size(); ++i) text.layers[i].stage.k = filters[i];
  return text;
}

struct Shape {
  const char* name;
  std::vector<Index> sizes;
};
const std::vector<Shape> some_shapes = {
    {"conv1.weight", {8, 1, 5, 5}},
    {"conv1.bias", {8}},
    {"conv2.weight", {16, 8, 5, 5}},
    {"conv2.bias", {16}},
    {"fc1.bias", {128}},
    {"fc1.weight", {128, 256}},
    {"fc2.weight", {96, 128}},
    {"fc2.bias", {96}},
    {"fc3.weight", {10, 96}},
    {"fc3.bias", {10}},
};

class InMemory : public testing::Test {
 protected:
  void SetUp() override {
    io::ParameterFolder folder(shipped);
    for (const Shape& shape : some_shapes) {
      values_[shape.name] = folder.read(shape.name, shape.sizes, "");
      parameters_[shape.name] = TensorView(values_[shape.name].data(), DType::f32, shape.sizes);
    }
    std::uint32_t state = 1;
    for (std::uint8_t& pixel : pixels_)
      pixel = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  }
  std::vector<float> logits(const Network& network) const {
    std::vector<float> logits(40);
    network
        .run(ConstTensorView::of(pixels_.data(), {4, 28, 28}),
             TensorView::of(logits.data(), {4, 10}), {})
        .or_throw();
    return logits;
  }
  std::string refusal(const NetworkText& text) const {
    try {
      const Network network(text, parameters_);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  std::map<std::string, std::vector<float>> values_;
  NetworkParameters parameters_;
  std::vector<std::uint8_t> pixels_ = std::vector<std::uint8_t>(4 * 28 * 28);
};

TEST_F(InMemory, TheShippedNetworkHasTheBitsOfItsFolder) {
  for (const bool kernels : {true, false}) {
    NetworkOptions options;
    options.spike_kernels = kernels;
    const Network folder(shipped, options), memory(by_hand(), parameters_, options);
    const std::vector<float> expected = logits(folder), found = logits(memory);
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)), 0);
    ASSERT_EQ(memory.layers().size(), folder.layers().size());
    for (std::size_t i = 0; i < memory.layers().size(); ++i) {
      EXPECT_EQ(memory.layers()[i].stage, folder.layers()[i].stage);
      EXPECT_EQ(memory.layers()[i].kernel, folder.layers()[i].kernel);
    }
    const Network again(folder.text(), parameters_, options);  // a text that was parsed
    EXPECT_EQ(logits(again), expected);
  }
}

TEST_F(InMemory, ViewsMayBePermutedOrFlatAndAreNotKept) {
  // conv2's filters as [K,R,S,C] in memory, seen as [K,C,R,S].
  const std::vector<float>& w = values_["conv2.weight"];
  std::vector<float> last(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    const std::size_t k = i / 200, c = i / 25 % 8, tap = i % 25;
    last[k * 200 + tap * 8 + c] = w[i];
  }
  TensorView permuted = TensorView::of(last.data(), {16, 8, 5, 5});
  permuted.stride = {200, 1, 40, 8};
  parameters_["conv2.weight"] = permuted;
  parameters_["fc1.weight"] = TensorView::of(values_["fc1.weight"].data(), {128 * 256});
  const Network memory(by_hand(), parameters_);
  for (auto& [name, values] : values_) values.assign(values.size(), 0.0F);
  last.assign(last.size(), 0.0F);
  EXPECT_EQ(logits(memory), logits(Network(shipped)));
}

TEST_F(InMemory, HalvesAndBatchNorms) {
  const NetworkText text = parse_network("input f32:h1w2c1\nconv k2r1s2 batchnorm(bn)\n", "n");
  std::uint16_t half[4];
  const float w[] = {1, 2, -3, 0.5F}, one[] = {1, 1}, bias[] = {0.25F, -1}, mean[] = {0.5F, 4},
              variance[] = {3, 0.25F};
  for (Index i = 0; i < 4; ++i) math::store(DType::f16, half, i, w[i]);
  const NetworkParameters parameters{{"conv.weight", TensorView(half, DType::f16, {2, 1, 1, 2})},
                                     {"bn.weight", ConstTensorView::of(one, {2})},
                                     {"bn.bias", ConstTensorView::of(bias, {2})},
                                     {"bn.running_mean", ConstTensorView::of(mean, {2})},
                                     {"bn.running_var", ConstTensorView::of(variance, {2})},
                                     {"bn.num_batches_tracked", TensorView()}};
  const Network network(text, parameters);
  const float x[] = {3, 5};
  float y[2];
  network.run(ConstTensorView::of(x, {1, 1, 2}), TensorView::of(y, {1, 2}), {}).or_throw();
  EXPECT_NEAR(y[0], (13 - 0.5) / std::sqrt(3 + 1e-5) + 0.25, 1e-5);
  EXPECT_NEAR(y[1], (-6.5 - 4) / std::sqrt(0.25 + 1e-5) - 1, 1e-4);
}

TEST_F(InMemory, WhatIsWrongIsNamed) {
  const auto expect = [&](const NetworkText& text, const std::string& expected) {
    EXPECT_NE(refusal(text).find(expected), std::string::npos) << refusal(text);
  };
  const auto with = [](const auto& change) {
    NetworkText text = by_hand();
    change(text);
    return text;
  };
  expect(with([](NetworkText& t) { t.h = 0; }), "the network's input: images of 0x0x1");
  expect(with([](NetworkText& t) { t.dtype = DType::i32; }), "i32 images");
  expect(with([](NetworkText& t) { t.mean = {1, 2}; }), "mean has 2 numbers");
  expect(with([](NetworkText& t) { t.std = {NAN}; }), "std nan");
  expect(with([](NetworkText& t) { t.steps = 0; }), "the network's steps: 0, expected 1 to 65536");
  expect(with([](NetworkText& t) { t.layers.clear(); }), "0 layers: the network has no layer");
  expect(with([](NetworkText& t) { t.layers.resize(3); }), "the network has no layer");
  expect(with([](NetworkText& t) { t.layers[1].name = "conv1"; }),
         "the network's layer 2: a second layer \"conv1\"");
  expect(with([](NetworkText& t) { t.layers[1].name = "a\n"; }), "found a control character");
  expect(with([](NetworkText& t) { t.layers[1].name = ""; }), "a layer without a name");
  expect(with([](NetworkText& t) { t.layers[1].stage.r = 15; }), "conv2 on an input of 12x12x8");
  expect(with([](NetworkText& t) { t.layers[0].stage.k = 0; }), "conv1 on an input of 28x28x1");
  expect(with([](NetworkText& t) { t.layers[1].stage.norm = true; }),
         "expected none of them in a network");
  expect(with([](NetworkText& t) { t.layers[3].stage.r = 3; }), "a linear layer");
  expect(with([](NetworkText& t) { t.layers[4] = t.layers[2]; }), "a second \"flatten\"");
  expect(with([](NetworkText& t) { t.layers.resize(1001, t.layers[0]); }), "second layer");

  const auto given = [&](const char* name, const ConstTensorView& view,
                         const std::string& expected) {
    const ConstTensorView before = parameters_[name];
    parameters_[name] = view;
    expect(by_hand(), expected);
    parameters_[name] = before;
  };
  float* const w = values_["conv2.weight"].data();
  given(
      "conv2.weight", TensorView::of(w, {16, 5, 5, 8}),
      "parameter \"conv2.weight\": found f32[16,5,5,8] on cpu, contiguous, expected f32[16,8,5,5] "
      "(k16 r5 s5 c8)");
  given("conv2.weight", TensorView::of(w, {3199}), "found f32[3199]");
  given("conv2.weight", TensorView(), "found no tensor");
  given("conv2.weight", TensorView(w, DType::i32, {16, 8, 5, 5}), "found i32[16,8,5,5]");
  given("conv2.weight", TensorView(w, DType::f32, {16, 8, 5, 5}, {DeviceKind::cuda, 0}),
        "it is on cuda, expected the host");
  given("conv2.weight", TensorView(reinterpret_cast<char*>(w) + 1, DType::f32, {16, 8, 5, 5}),
        "a multiple of 4");
  TensorView endless = TensorView::of(w, {16, 8, 5, 5});
  endless.stride[0] = Index{1} << 62;
  given("conv2.weight", endless, "expected strides that fit in memory");
  w[17] = INFINITY;
  expect(by_hand(), "parameter \"conv2.weight\": value 18 is inf, expected finite numbers");
  w[17] = 0;
  parameters_.erase("fc3.bias");
  expect(by_hand(), "parameter \"fc3.bias\": not given, expected f32[10] (k10)");
}

}  // namespace
}  // namespace convoy
