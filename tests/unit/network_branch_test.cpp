// Networks whose layers read others than the one before: every output against plans of the single
// stages, and what is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "convoy/network.hpp"

namespace convoy {
namespace {

// Small whole numbers, so that every sum is exact and all kernels give the same bits.
std::vector<float> whole_numbers(Index count, int low, int high, std::uint32_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(low + static_cast<int>(seed >> 16) % (high - low + 1));
  }
  return values;
}

/// A network of images of one pixel's linear layers or of convolutions, with weights and images.
struct Example {
  NetworkText text;
  std::map<std::string, std::vector<float>> values;
  NetworkParameters parameters;
  Index n;
  Tensor images;

  explicit Example(const std::string& lines, Index n_ = 5)
      : text(parse_network(lines, "network.txt")),
        n(n_),
        images(DType::f32, {n, text.h, text.w, text.c}) {
    std::uint32_t seed = 1;
    for (const NetworkLayer& layer : text.layers) {
      if (layer.flatten) continue;
      const std::string weight = layer.name + ".weight", bias = layer.name + ".bias";
      values[weight] = whole_numbers(shapes_of(layer.stage).w_elements, -1, 2, ++seed);
      parameters[weight] = flat(values[weight]);
      if (!layer.stage.bias) continue;
      values[bias] = whole_numbers(layer.stage.k, -3, 3, ++seed);
      parameters[bias] = flat(values[bias]);
    }
    const std::vector<float> pixels = whole_numbers(images.elements(), -2, 3, 77);
    std::memcpy(images.view().data, pixels.data(), images.bytes());
  }
  static TensorView flat(std::vector<float>& all) {
    return TensorView::of(all.data(), {static_cast<Index>(all.size())});
  }

  /// [K,R,S,C] of a layer's parameter (K,C,R,S).
  std::vector<float> filters(const NetworkLayer& layer) const {
    const Stage& s = layer.stage;
    const std::vector<float>& w = values.at(layer.name + ".weight");
    std::vector<float> result;
    for (Index k = 0; k < s.k; ++k)
      for (Index tap = 0; tap < s.r * s.s; ++tap)
        for (Index c = 0; c < s.c; ++c)
          result.push_back(w[static_cast<std::size_t>((k * s.c + c) * s.r * s.s + tap)]);
    return result;
  }

  /// The output of each layer, [T,N,P',Q',K] or [N,P',Q',K], by plans of `general`.
  std::map<std::string, std::vector<float>> by_stages() const {
    std::map<std::string, std::vector<float>> outputs;
    const auto* const pixels = images.data<float>();
    std::vector<float> before(pixels, pixels + images.elements());
    for (const NetworkLayer& layer : text.layers) {
      if (layer.flatten) continue;  // of one pixel here: the same vector
      Stage stage = layer.stage;
      stage.n = n;
      std::vector<float> x = layer.from.empty() ? before : side_by_side(layer.from, outputs);
      const Index images_of_x = static_cast<Index>(x.size()) / (stage.h * stage.w * stage.c);
      if (!stage.act.is_neuron()) stage.n = images_of_x;
      std::vector<float> w = filters(layer);
      PlanOptions options;
      options.kernel = "general";
      const Plan plan(stage, TensorView::of(w.data(), {stage.k, stage.r, stage.s, stage.c}),
                      options);
      std::vector<float> y(static_cast<std::size_t>(plan.shapes().y_elements));
      Operands operands;
      operands.x = TensorView(x.data(), DType::f32, x_shape(stage));
      operands.y = TensorView(y.data(), DType::f32, y_shape(stage));
      std::vector<float> bias;
      if (stage.bias) bias = values.at(layer.name + ".bias");
      if (stage.bias) operands.bias = flat(bias);
      plan.run(operands).or_throw();
      before = outputs[layer.name] = y;
    }
    return outputs;
  }
  std::vector<float> side_by_side(const std::vector<std::string>& names,
                                  const std::map<std::string, std::vector<float>>& outputs) const {
    std::vector<Index> channels;
    for (const std::string& name : names)
      for (const NetworkLayer& layer : text.layers)
        if (layer.name == name) channels.push_back(layer.stage.k);
    const Index pixels = static_cast<Index>(outputs.at(names[0]).size()) / channels[0];
    std::vector<float> all;
    for (Index pixel = 0; pixel < pixels; ++pixel)
      for (std::size_t i = 0; i < names.size(); ++i) {
        const float* const from = outputs.at(names[i]).data() + pixel * channels[i];
        all.insert(all.end(), from, from + channels[i]);
      }
    return all;
  }
};

/// Every layer's output, and the logits of runs in batches, whose tensors share memory.
void expect_stages(const Example& example) {
  const auto expected = example.by_stages();
  for (const bool kernels : {true, false})
    for (const Index batch : {Index{2}, Index{64}}) {
      SCOPED_TRACE(std::string(kernels ? "kernels" : "plans") + ", batch " + std::to_string(batch));
      NetworkOptions options;
      options.threads = 2;
      options.batch = batch;
      options.spike_kernels = kernels;
      const Network network(example.text, example.parameters, options);
      const std::string& last = example.text.layers.back().name;
      const std::vector<float>& steps = expected.at(last);
      const Index values = network.classes() * example.n,
                  count = static_cast<Index>(steps.size()) / values;
      std::vector<float> logits(static_cast<std::size_t>(values)), mean(logits.size());
      network.run(example.images, TensorView::of(logits.data(), {example.n, network.classes()}), {})
          .or_throw();
      for (std::size_t i = 0; i < steps.size(); ++i) mean[i % mean.size()] += steps[i];
      for (float& value : mean) value /= static_cast<float>(count);
      EXPECT_EQ(logits, mean);
      if (batch < example.n) continue;
      const std::vector<Tensor> traced = network.trace(example.images);
      ASSERT_EQ(traced.size(), network.layers().size());
      for (std::size_t i = 0; i < traced.size(); ++i) {
        const std::string& name = network.layers()[i].name;
        const float* const data = traced[i].data<float>();
        EXPECT_EQ(std::vector<float>(data, data + traced[i].elements()),
                  name == last && traced[i].elements() == values ? mean : expected.at(name))
            << name;
      }
    }
}

TEST(NetworkBranch, TwoBranchesMeet) {
  expect_stages(
      Example("input f32:h9w7c3\n"
              "conv1 k8r3+bias+relu\n"
              "wide k12r3pad1+bias+relu\n"
              "wide2 k5r3pad1+relu6\n"
              "narrow k7r1+bias from(conv1)\n"
              "both k6r3+bias+relu+max2 from(wide2,narrow,conv1)\n"
              "last k4r2s1 from(both)\n"));
}

// conv1 lives until the end, over everything that lies between.
TEST(NetworkBranch, AnOutputLivesUntilItsLastReader) {
  expect_stages(
      Example("input f32:h6w6c2\nconv1 k4r1+bias\na k4r3pad1+relu\nb k4r3pad1+relu\n"
              "c k4r3pad1+relu\nlast k3r6 from(c,conv1)\n"));
}

TEST(NetworkBranch, SpikesMeetInEachStep) {
  expect_stages(
      Example("input f32:h6w6c1\nsteps 3\n"
              "conv1 k8r3pad1+bias+if(2)\n"
              "a k8r1+if(3)\n"
              "b k8r3pad1+bias+if(2) from(conv1)\n"
              "c k8r3+if(2)+max2 from(a,b)\n"
              "last k3r2+bias from(c)\n"));
}

TEST(NetworkBranch, VectorsMeet) {
  const Example example(
      "input f32:h1w1c6\nflatten\nfc1 k5+bias+relu\nfc2 k4+relu\nfc3 k3+bias from(fc2,fc1)\n");
  EXPECT_EQ(to_text(example.text.layers[3].stage), "n1h1w1c9k3r1+bias");
  expect_stages(example);
}

TEST(NetworkBranch, WhatIsWrongIsNamed) {
  const std::string head = "input f32:h8c3\nconv1 k4r3\nconv2 k5r3pad1\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a k2r3 from()\n", "n:4: \"from()\": expected the end of the line"},
      {"a k2r3 from(conv1\n", "n:4: \"from(conv1\": expected the end of the line"},
      {"a k2r3 from(conv1) from(conv2)\n", "n:4: \"from(conv2)\": expected the end of the line"},
      {"a k2r3 from(conv3)\n", "n:4: from(conv3): no layer before this one has that name"},
      {"a k2r3 from(a)\n", "n:4: from(a): no layer before this one"},
      {"a k2r3 from(conv1,)\n", "n:4: from(): no layer before this one"},
      {"a k2r3 from(conv1)\n", "n: no layer reads the output of conv2"},
      {"conv3 k2r3 from(conv1)\nb k2r3pad1 from(conv1,conv3)\n",
       "n:5: from: conv1 gives 6x6, conv3 gives 4x4: expected equal sizes"},
      {"a k2r3+if(1) from(conv1)\nb k2r3 from(conv2,a)\n",
       "n:5: from: conv2 gives 6x6, a gives 4x4 in each step: expected equal sizes"},
      {"a k2r3pad1 from(conv1)\nflatten\nb k2r1 from(conv2,a)\n",
       "n: no layer reads the output of flatten"},
      {"flatten\nb k2 from(conv2)\n", "n:5: b on an input of 6x6x5"},
      {"a k2r3 from(conv2)\nflatten\nb k2r1 from(conv1,b)\n", "n:6: from(b)"},
  };
  for (const auto& [lines, expected] : cases) {
    try {
      parse_network(head + lines, "n");
      ADD_FAILURE() << "accepted: " << lines;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(expected)) << lines << error.what();
    }
  }
}

}  // namespace
}  // namespace convoy
