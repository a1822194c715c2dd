// GraphBuilder: what it takes and refuses, and runs by names.
#include <gtest/gtest.h>

#include "convoy/graph.hpp"

namespace convoy {
namespace {

template <class Call>
std::string said(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

class Builder : public testing::Test {
 protected:
  ConstTensorView w(Index k, Index r, Index c) { return view({k, r, r, c}); }
  ConstTensorView view(const std::vector<Index>& shape) {
    return {ones_.data(), DType::f32, shape};
  }
  std::vector<float> ones_ = std::vector<float>(4096, 1.0F);
  GraphBuilder g_;
};

TEST_F(Builder, RunsTwoInputsAndTwoOutputsByName) {
  const auto x = g_.input("x", DType::f32, {2, 2, 1}), z = g_.input("z", DType::f32, {2, 2, 1});
  const auto a = g_.convolution(x, w(2, 1, 1), {}, {}), b = g_.convolution(z, w(1, 1, 1), {}, {});
  const auto all = g_.concat({a, b});
  g_.output("all", all);
  g_.output("sums", g_.convolution(g_.slice(all, 1, 2), w(1, 1, 2), {}, {}));
  const Network network = g_.build();
  ASSERT_EQ(network.inputs().size(), 2U);
  EXPECT_EQ(network.outputs()[0].axes, (std::vector<Index>{2, 2, 3}));
  std::vector<float> x_values{1, 2, 3, 4}, z_values{10, 20, 30, 40}, everything(12), sums(4);
  const TensorView in_x = TensorView::of(x_values.data(), {1, 2, 2, 1}),
                   in_z = TensorView::of(z_values.data(), {1, 2, 2, 1}),
                   out = TensorView::of(everything.data(), {1, 2, 2, 3}),
                   out_sums = TensorView::of(sums.data(), {1, 2, 2, 1});
  network.run({{"z", in_z}, {"x", in_x}}, {{"all", out}, {"sums", out_sums}}, {}).or_throw();
  EXPECT_EQ(everything, (std::vector<float>{1, 1, 10, 2, 2, 20, 3, 3, 30, 4, 4, 40}));
  EXPECT_EQ(sums, (std::vector<float>{11, 22, 33, 44}));
  // One output alone, and refusals.
  sums.assign(4, 0);
  network.run({{"z", in_z}, {"x", in_x}}, {{"sums", out_sums}}, {}).or_throw();
  EXPECT_EQ(sums, (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(network.run({{"x", in_x}}, {{"sums", out_sums}}, {}).message(),
            "input z: it is missing. Give a tensor of that name.");
  EXPECT_EQ(network.run({{"x", in_x}, {"z", in_z}}, {{"sum", out_sums}}, {}).message(),
            "output \"sum\": the network has none of that name, expected all, sums.");
  EXPECT_NE(network.run({{"x", in_x}, {"z", in_z}}, {{"all", out_sums}}, {})
                .message()
                .find("expected f32[1,2,2,3], contiguous"),
            std::string::npos);
  EXPECT_NE(network.run({{"x", in_x}, {"z", in_z}}, {{"sums", in_x}}, {}).message().find("overlap"),
            std::string::npos);
  const TensorView nowhere(nullptr, DType::f32, {1, 2, 2, 1});
  EXPECT_NE(network.run({{"x", nowhere}, {"z", in_z}}, {{"sums", out_sums}}, {})
                .message()
                .find("x: its data is null, expected memory of f32[1,2,2,1]"),
            std::string::npos);
  EXPECT_NE(network.run({{"x", in_x}, {"z", in_z}}, {{"sums", nowhere}}, {})
                .message()
                .find("sums: its data is null, expected memory of f32[1,2,2,1]"),
            std::string::npos);
  EXPECT_EQ(network.run({{"x", in_x}, {"z", in_z}}, {{"sums", {}}}, {}).message(),
            "output sums: it is an empty view, expected a tensor. Leave it out if you do not want "
            "it.");
  EXPECT_NE(network.run(in_x, {}, {}).message().find("named tensors"), std::string::npos);
  EXPECT_EQ(said([&] { network.warm(3); }), "accepted");
  EXPECT_NE(said([&] { network.warm(0); }).find("found 0 images"), std::string::npos);
}

TEST_F(Builder, RefusesValuesOfOtherBuilders) {
  const auto x = g_.input("x", DType::f32, {4, 4, 3});
  GraphBuilder other;
  other.input("x", DType::f32, {4, 4, 3});
  EXPECT_NE(said([&] { other.activation(x, relu); }).find("another builder"), std::string::npos);
  EXPECT_NE(said([&] { other.activation({}, relu); }).find("another builder"), std::string::npos);
  GraphBuilder moved = std::move(g_);
  EXPECT_EQ(said([&] { moved.activation(x, relu); }), "accepted");
}

TEST_F(Builder, AppendsNothingIfItThrows) {
  const auto x = g_.input("x", DType::f32, {4, 4, 3});
  const ConstTensorView nowhere(nullptr, DType::f32, {2});
  EXPECT_NE(said([&] {
              g_.convolution(x, w(2, 3, 3), view({2, 1}), {});
            }).find("expected 1 axes"),
            std::string::npos);
  EXPECT_NE(said([&] { g_.convolution(x, w(2, 3, 3), nowhere, {}); }).find("bias: found"),
            std::string::npos);
  EXPECT_NE(said([&] { g_.convolution(x, w(2, 5, 3), view({2}), {}); }).find("on an input"),
            std::string::npos);
  // The next value has the next number.
  EXPECT_EQ(g_.activation(x, relu).id, x.id + 1);
}

// Names are free text; those of inputs, outputs and the user come before those that a number makes.
TEST_F(Builder, TakesAnyNames) {
  const auto x = g_.input("layer1/conv:0", DType::f32, {4, 4, 3});
  const auto a = g_.convolution(x, w(2, 1, 3), {}, {}, "layer1/conv:0");
  const auto b = g_.activation(a, relu, false, std::string(1000, '%') + "\n\xff");
  const auto c = g_.convolution(b, w(3, 1, 2), {}, {});  // convolution3
  const auto d = g_.batch_norm(c, view({3}), view({3}), view({3}), view({3}), 0, "d");
  const auto e = g_.max_pool(d, max_pool(2), "convolution3");
  const auto f = g_.concat({e, e}, "d weights");
  const auto h = g_.linear(g_.flatten(g_.slice(f, 1, 2, "s"), true, "d bias"), view({2, 8}), {},
                           "layer1/conv:0 ones");
  g_.activation(g_.max_pool(x, max_pool(2), "dead"), relu);
  g_.output("s", f);
  g_.output("y", h);
  const std::string text = g_.describe();
  EXPECT_EQ(text.find('\xff'), std::string::npos);
  EXPECT_NE(text.find("input layer1/conv:0: f32 4x4x3"), std::string::npos) << text;
  EXPECT_NE(text.find("y: f32 2 = linear of d bias"), std::string::npos) << text;
  const Network network = g_.build();
  std::vector<std::string> names;
  for (const LayerReport& layer : network.layers()) names.push_back(layer.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"layer1/conv:0", "convolution3'", "layer1/conv:0 ones"}));
  EXPECT_EQ(network.inputs()[0].name, "layer1/conv:0");
  EXPECT_EQ(network.outputs()[0].name, "s");
  std::vector<float> in(48, 1), out(2);
  network
      .run({{"layer1/conv:0", TensorView::of(in.data(), {1, 4, 4, 3})}},
           {{"y", TensorView::of(out.data(), {1, 2})}}, {})
      .or_throw();
  // 3, then 6, then (6 - 1) * 1 + 1, and eight of them.
  EXPECT_EQ(out, (std::vector<float>{48, 48}));
}

TEST_F(Builder, RefusesNamesThatAreTaken) {
  const auto x = g_.input("x", DType::f32, {4, 4, 3});
  g_.activation(x, relu, false, "a/b");
  EXPECT_EQ(said([&] { g_.max_pool(x, max_pool(2), "a/b"); }),
            "max-pool \"a/b\": an operator has that name already, expected another name");
  EXPECT_EQ(said([&] { g_.slice(x, 2, 2, "c\n"); }),
            "c?: slice: channels [2, 4) of 3, expected at least one, inside");
  // A name that was refused with its operator is free.
  EXPECT_EQ(said([&] { g_.slice(x, 1, 2, "c\n"); }), "accepted");
}

TEST_F(Builder, RefusesWhatNoOperatorTakes) {
  const auto x = g_.input("x", DType::f32, {4, 4, 3});
  EXPECT_NE(said([&] {
              g_.input("x", DType::f32, {4, 4, 3});
            }).find("no other"),
            std::string::npos);
  EXPECT_NE(said([&] { g_.input("y", DType::i32, {4, 4, 3}); }).find("i32"), std::string::npos);
  EXPECT_NE(said([&] {
              g_.input("y", DType::f32, {4, 4});
            }).find("{H,W,C} or {C}"),
            std::string::npos);
  EXPECT_EQ(said([&] { g_.convolution(x, w(2, 3, 4), {}, {}); }),
            "convolution: operand 2 is f32 2x3x3x4, expected a constant f32[-1,-1,-1,3] (-1: any "
            "size)");
  EXPECT_NE(said([&] { g_.convolution(x, w(2, 5, 3), {}, {}); }).find("convolution on an input"),
            std::string::npos);
  EXPECT_NE(said([&] {
              g_.linear(x, view({2, 48}), {});
            }).find("flatten it first"),
            std::string::npos);
  EXPECT_NE(said([&] { g_.slice(x, 2, 2); }).find("channels [2, 4) of 3"), std::string::npos);
  EXPECT_NE(said([&] { g_.concat({x}); }).find("found 1 operands"), std::string::npos);
  EXPECT_NE(said([&] { g_.mean_of_steps(x); }).find("as a neuron gives it"), std::string::npos);
  EXPECT_NE(said([&] { g_.activation({99}, relu); }).find("this builder has none"),
            std::string::npos);
  EXPECT_NE(said([&] { g_.output("x", x); }).find("it is an input"), std::string::npos);
  EXPECT_NE(said([&] { g_.build(); }).find("has no output"), std::string::npos);
  const auto flat = g_.flatten(x);
  g_.output("y", g_.activation(flat, relu));
  EXPECT_NE(said([&] { g_.build(); }).find("PyTorch's order"), std::string::npos);
  EXPECT_NE(said([&] { GraphBuilder(0); }).find("expected 1 to 65536"), std::string::npos);
}

}  // namespace
}  // namespace convoy
