// network.txt: shapes that follow from layer to layer, and errors that name the line.
#include "convoy/network.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "count_allocations.hpp"
#include "math/half.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

constexpr const char* spiking =
    "# a comment\n"
    "input u8:h28w28c1 mean(0.5) std(0.5)   # another\n"
    "steps 2\n"
    "\n"
    "conv1 k8r5+bias+if(1)+max2\r\n"
    "conv2 k16r5+bias+if(1)+max2\n"
    "flatten\n"
    "fc1 k128+bias+if(1)\n"
    "fc2 k10+bias";

TEST(NetworkText, ShapesAndStepsFollow) {
  const NetworkText network = parse_network(spiking, "network.txt");
  EXPECT_EQ(network.steps, 2);
  EXPECT_EQ(network.mean, std::vector<float>{0.5F});
  ASSERT_EQ(network.layers.size(), 5U);
  EXPECT_EQ(to_text(network.layers[0].stage), "n1h28w28c1k8r5+bias+if(1)+t2+hold+max2");
  EXPECT_EQ(to_text(network.layers[1].stage), "n1h12w12c8k16r5+bias+if(1)+t2+max2");
  EXPECT_TRUE(network.layers[2].flatten);
  EXPECT_EQ(to_text(network.layers[3].stage), "n1h1w1c256k128r1+bias+if(1)+t2");
  EXPECT_EQ(to_text(network.layers[4].stage), "n1h1w1c128k10r1+bias");
  EXPECT_EQ(network.layers[4].line, 9);
}

TEST(NetworkText, ALayerBeforeTheFirstNeuronIsTheSameInEachStep) {
  const NetworkText network = parse_network(
      "input u8:h8c3 mean(0.1,0.2,0.3)\nsteps 4\nconv1 k4r3+relu\nconv2 k4r3+lif(2,1)\nflatten\nfc "
      "k2\n",
      "n");
  EXPECT_EQ(network.layers[0].stage.t, 1);
  EXPECT_EQ(network.layers[1].stage.t, 4);
  EXPECT_TRUE(network.layers[1].stage.hold);
  EXPECT_EQ(network.layers[3].stage.t, 1);
}

TEST(NetworkText, SaysTheLineAndWhatIsWrong) {
  const std::string head = "input u8:h8w8c1\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "n: empty"},
      {"conv1 k8r5\n", "n:1: \"conv1\" before the input"},
      {head + head, "n:2: a second \"input\""},
      {"input\n", "n:1: found only \"input\""},
      {"input u8:h8w8c1k3\n", "n:1: "},
      {"input i32:h8w8c1\n", "n:1: "},
      {"input f16:h8w8c1 mean(0.5)\n", "n:1: mean and std with f16 images"},
      {"input u8:h0w8c1\n", "n:1: "},
      {"input u8:h8w8c1 mean(0.5\n", "n:1: \"mean(0.5\""},
      {"input u8:h8w8c1 mean(x)\n", "n:1: \"mean(x)\""},
      {"input u8:h8w8c1 mean(nan)\n", "n:1: \"mean(nan)\""},
      {"input u8:h8w8c3 std(1,2)\n", "n:1: std has 2 numbers, expected one or 3"},
      {"input u8:h8w8c1 std(0)\n", "n:1: found std 0"},
      {"input u8:h8w8c1 scale(2)\n", "n:1: \"scale(2)\""},
      {head + "steps\n", "n:2: expected \"steps N\""},
      {head + "steps 0\n", "n:2: expected \"steps N\""},
      {head + "conv1 k2r3\nsteps 2\n", "n:3: found \"steps\" after a layer"},
      {head + "dropout\n", "n:2: \"dropout\": unknown layer"},
      {head + "conv1 k2q3\n", "n:2: "},
      {head + "conv1 k2\n", "n:2: \"k2\": r, the filter's height, is missing"},
      {head + "conv1 r3\n", "n:2: \"r3\": k, the number of outputs, is missing"},
      {head + "conv1 k0r3\n", "n:2: "},
      {head + "conv1 k2r9\n", "n:2: conv1 on an input of 8x8x1"},
      {head + "conv1 k2r3+max7\n", "n:2: "},
      {head + "conv1 h8k2r3\n", "n:2: \"h8k2r3\": n, h, w, c and the type follow"},
      {head + "conv1 k2r3+if(1)+t2\n", "n:2: found t or hold"},
      {head + "conv1 k2r3+norm\n", "n:2: "},
      {head + "conv1 k2r3 what\n", "n:2: \"what\""},
      {head + "conv1 k2r3 batchnorm()\n", "n:2: \"batchnorm()\""},
      {head + "a/b\x01 k2r3\n", "n:2: \"a/b?\": found a control character"},
      {head + "a k2r3\na k2r3\n", "n:3: a second layer \"a\" (the first is in line 2)"},
      {head + "flatten\nflatten\n", "n:3: found a second \"flatten\""},
      {head + "flatten x\n", "n:2: found more words after \"flatten\""},
      {head + "flatten\nfc k2r1\n", "n:3: \"k2r1\": a linear layer"},
      {head + "flatten\nfc k2groups2\n", "n:3: fc: a linear layer"},
      {head + "flatten\nfc k2pad1\n", "n:3: fc: a linear layer"},
      {head + "flatten\nfc k2stride2\n", "n:3: fc: a linear layer"},
      {head + "flatten\nfc k2dil2\n", "n:3: fc: a linear layer"},
      {head + "flatten\nfc k2+max1\n", "n:3: fc: a linear layer"},
      {head + "flatten\nfc1 k4\nfc2 k2groups2 from(fc1)\n", "n:4: fc2: a linear layer"},
      {head, "n: the network has no layer"},
      {head + "flatten\n", "n: the network has no layer"},
      {head + "conv1 k999999999999999999r3\n", "n:2: "},
      {"input u8:h99999999w99999999c99999999\nflatten\nfc k2\n", "n:2: "},
  };
  for (const auto& [text, expected] : cases) {
    try {
      parse_network(text, "n");
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(expected))
          << text << " -> " << error.what();
    }
  }
}

class Model : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("convoy-network-" + std::to_string(getpid()));
    std::filesystem::create_directory(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  void numbers(const std::string& name, const std::vector<double>& values) const {
    std::ofstream out(path_ / name);
    out.precision(9);
    for (const double value : values) out << value << "\n";
  }
  std::filesystem::path path_;
};

TEST_F(Model, BatchNormIsFolded) {
  write("network.txt", "input u8:h1w2c1\nconv k2r1s2 batchnorm(bn)\n");
  numbers("conv.weight.txt", {1, 2, -3, 0.5});
  numbers("bn.weight.txt", {2, 0.5});
  numbers("bn.bias.txt", {0.25, -1});
  numbers("bn.running_mean.txt", {0.125, 4});
  numbers("bn.running_var.txt", {3, 0.25});
  const Network network(path_);
  const std::uint8_t image[2] = {51, 102};
  float out[2];
  network.run(ConstTensorView::of(image, {1, 1, 2}), TensorView::of(out, {1, 2}), {}).or_throw();
  const double x[2] = {51 / 255.0, 102 / 255.0};
  EXPECT_NEAR(out[0], (x[0] + 2 * x[1] - 0.125) / std::sqrt(3 + 1e-5) * 2 + 0.25, 1e-6);
  EXPECT_NEAR(out[1], (-3 * x[0] + 0.5 * x[1] - 4) / std::sqrt(0.25 + 1e-5) * 0.5 - 1, 1e-5);
}

TEST_F(Model, FloatImagesAreNormalisedToo) {
  write("network.txt", "input f32:h1w1c2 mean(1,2) std(2,4)\nconv k1r1\n");
  numbers("conv.weight.txt", {1, 10});
  const Network network(path_);
  const float image[2] = {3, 10};
  float out[1];
  network.run(ConstTensorView::of(image, {1, 1, 1, 2}), TensorView::of(out, {1, 1}), {}).or_throw();
  EXPECT_FLOAT_EQ(out[0], 1 + 10 * 2);
}

TEST_F(Model, FlattenIsPyTorchs) {
  // Channel 1 of pixel (0, 1) is column 1*2 + 1 of the linear layer in PyTorch's order.
  write("network.txt", "input u8:h1w2c2\nflatten\nfc k4\n");
  std::vector<double> identity(16, 0.0);
  for (std::size_t i = 0; i < 4; ++i) identity[i * 5] = 255;
  numbers("fc.weight.txt", identity);
  const Network network(path_);
  const std::uint8_t image[4] = {10, 20, 30, 40};  // pixel 0: 10, 20; pixel 1: 30, 40
  float out[4];
  network.run(ConstTensorView::of(image, {1, 1, 2, 2}), TensorView::of(out, {1, 4}), {}).or_throw();
  const float expected[4] = {10, 30, 20, 40};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(out[i], expected[i], 1e-4) << i;
}

TEST_F(Model, EqualOutputsGiveTheFirstLabel) {
  write("network.txt", "input u8:h1w1c1\nflatten\nfc k3+bias\n");
  numbers("fc.weight.txt", {0, 0, 0});
  numbers("fc.bias.txt", {1, 2, 2});
  const Network network(path_);
  const std::uint8_t image[1] = {1};
  std::int32_t label = -1;
  network.run(ConstTensorView::of(image, {1, 1, 1, 1}), {}, TensorView::of(&label, {1})).or_throw();
  EXPECT_EQ(label, 1);
}

// One step has no axis of its own, in images and logits and in named tensors.
TEST_F(Model, ANeuronAtTheEndOfOneStep) {
  write("network.txt", "input f32:h1w2c1\nflatten\nfc k2+if(1)\n");
  numbers("fc.weight.txt", {1, 0, 0, 1});
  const Network network(path_);
  const float images[4] = {0.5F, 2, 1, 0.25F}, expected[4] = {0, 1, 1, 0};
  float logits[4], named[4];
  network.run(ConstTensorView::of(images, {2, 1, 2, 1}), TensorView::of(logits, {2, 2}), {})
      .or_throw();
  const Port& out = network.outputs()[0];
  EXPECT_EQ(out.steps, 0);
  const NamedInput x[] = {{"images", ConstTensorView::of(images, {2, 1, 2, 1})}};
  const NamedOutput y[] = {{out.name, TensorView::of(named, {2, 2})}};
  network.run(x, y, {}).or_throw();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(logits[i], expected[i]) << i;
    EXPECT_EQ(named[i], expected[i]) << i;
  }
}

TEST_F(Model, ALastLayerThatIsNoVectorGivesItsValuesButNoLabels) {
  write("network.txt", "input f16:h2w2c1\nconv k2r1+bias+relu\n");
  numbers("conv.weight.txt", {1, -2});
  numbers("conv.bias.txt", {0.5, 0.25});
  const Network network(path_);
  EXPECT_EQ(network.layers()[0].stage, "f16:n1h2w2c1k2r1+bias+relu");
  Tensor images(DType::f16, {1, 2, 2, 1});
  for (Index i = 0; i < 4; ++i)
    math::store(DType::f16, images.view().data, i, static_cast<float>(i) - 1.0F);
  float out[8];
  ASSERT_EQ(network.classes(), 8);
  network.run(images, TensorView::of(out, {1, 8}), {}).or_throw();
  const float expected[8] = {0, 2.25F, 0.5F, 0.25F, 1.5F, 0, 2.5F, 0};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[i], expected[i]) << i;
  const std::vector<Tensor> traced = network.trace(images);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(traced[0].data<float>()[i], expected[i]) << i;
  std::int32_t label = 0;
  const Status status = network.run(images, {}, TensorView::of(&label, {1}));
  EXPECT_NE(status.message().find("the output of the last layer is 2x2x2"), std::string::npos)
      << status.message();
}

TEST(NetworkRun, AllocatesNothing) {
  if (!counts_allocations) GTEST_SKIP() << "sanitizers allocate themselves";
  for (const bool kernels : {true, false}) {
    NetworkOptions options;
    options.threads = 2;
    options.batch = 8;
    options.spike_kernels = kernels;
    const Network network(source_path("models/fashion-scnn"), options);
    std::vector<std::uint8_t> pixels(20 * 28 * 28, 77);
    std::vector<float> logits(200);
    std::vector<std::int32_t> labels(20);
    struct Views {
      TensorView images, logits, labels;
    };
    const auto views = [&](Index n) -> Views {
      return {TensorView::of(pixels.data(), {n, 28, 28}), TensorView::of(logits.data(), {n, 10}),
              TensorView::of(labels.data(), {n})};
    };
    const Views many = views(20), one = views(1);
    const auto run = [&](const Views& v) { network.run(v.images, v.logits, v.labels).or_throw(); };
    run(many);
    const long before = allocations();
    run(many);
    run(one);
    EXPECT_EQ(allocations(), before) << (kernels ? "kernels" : "plans");
  }
}

TEST_F(Model, MissingPartsAreNamed) {
  const auto message = [&] {
    try {
      const Network network(path_);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_NE(message().find("network.txt: cannot be opened"), std::string::npos);
  write("network.txt", "input u8:h1w1c1\nflatten\nfc k3+bias\n");
  EXPECT_NE(message().find("fc.weight"), std::string::npos);
  numbers("fc.weight.txt", {0, 0});
  EXPECT_NE(message().find("fc.weight.txt: 2 values, expected 3 (3 outputs x 1 inputs)"),
            std::string::npos)
      << message();
}

}  // namespace
}  // namespace convoy
