// Weights that plans share: the same bits as weights of their own, and clear refusals.
#include "plan/shared_weights.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "convoy/plan.hpp"
#include "math/half.hpp"

namespace convoy {
namespace {

Tensor numbers(const std::vector<Index>& shape, unsigned seed) {
  Tensor tensor(DType::f32, shape);
  for (Index i = 0; i < tensor.elements(); ++i) {
    seed = seed * 1664525 + 1013904223;
    tensor.data<float>()[i] = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
  }
  return tensor;
}

PlanOptions by(const char* kernel) {
  PlanOptions options;
  options.threads = 1;
  options.use_tuning = false;
  options.kernel = kernel;
  return options;
}

Tensor result(const Plan& plan, const Tensor& x) {
  Tensor y(DType::f32, y_shape(plan.stage()));
  plan.run({.x = x, .y = y}).or_throw();
  return y;
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.view().data, b.view().data, a.bytes()) == 0;
}

const Stage many = parse_stage("n5h9c16k24r3pad1+relu+max2"),
            few = parse_stage("n2h9c16k24r3pad1+relu+max2");

TEST(Weights, PlansOfTwoBatchSizesShareThem) {
  const Tensor w = numbers(w_shape(few), 1), x = numbers(x_shape(few), 2);
  for (const char* kernel : {"direct", "winograd2", "general"}) {
    SCOPED_TRACE(kernel);
    Plan small(few, by(kernel));
    {
      Plan large(many, by(kernel));
      ASSERT_EQ(large.packing(), small.packing());
      const Weights weights = large.pack(w);
      EXPECT_EQ(weights.packing(), large.packing());
      small.use(weights);
    }  // the plan that packed them is gone, and so is the object
    EXPECT_TRUE(equal(result(small, x), result(Plan(few, w, by(kernel)), x)));
  }
}

TEST(Weights, PlansRunWithThemAtOnceAndReplaceThemAlone) {
  const Tensor w = numbers(w_shape(few), 1), other = numbers(w_shape(few), 3),
               x = numbers(x_shape(few), 2);
  Plan one(few, by("direct")), two(few, by("direct"));
  const Weights weights = one.pack(w);
  one.use(weights);
  two.use(weights);
  const Tensor expected = result(Plan(few, w, by("direct")), x);
  std::thread beside([&] {
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(equal(result(two, x), expected));
  });
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(equal(result(one, x), expected));
  beside.join();
  two.set_weights(other);
  EXPECT_TRUE(equal(result(one, x), expected));
  EXPECT_FALSE(equal(result(two, x), expected));
  two.use(weights);  // and back
  EXPECT_TRUE(equal(result(two, x), expected));
}

// What a plan's options say of the view is done when it is packed.
TEST(Weights, AreFlippedAndWidenedWhenPacked) {
  const Tensor w = numbers(w_shape(few), 1), x = numbers(x_shape(few), 2);
  PlanOptions flipping = by("direct");
  flipping.flip_filters = true;
  Plan plain(few, by("direct"));
  // They would be used as they are: a convolution in place of a correlation, or the reverse.
  const Plan flipped(few, flipping);
  EXPECT_THROW(plain.use(flipped.pack(w)), Error);
  EXPECT_THROW(Plan(few, flipping).use(plain.pack(w)), Error);
  Plan another(few, flipping);
  another.use(flipped.pack(w));
  EXPECT_TRUE(equal(result(another, x), result(Plan(few, w, flipping), x)));

  Stage half = few;
  half.dtype = DType::f16;
  Tensor rounded(DType::f16, w_shape(half));
  for (Index i = 0; i < w.elements(); ++i)
    math::store(DType::f16, rounded.view().data, i, w.data<float>()[i]);
  EXPECT_TRUE(Plan(half, by("general")).pack(rounded));
}

std::string refusal(Plan& plan, const Weights& weights) {
  try {
    plan.use(weights);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Weights, OfAnotherPackingAreRefused) {
  const Tensor w = numbers(w_shape(few), 1), x = numbers(x_shape(few), 2);
  Plan plan(few, w, by("direct"));
  const Tensor before = result(plan, x);
  EXPECT_NE(refusal(plan, {}).find("found none"), std::string::npos);
  EXPECT_EQ(Weights().packing(), "");

  const Plan winograd(few, by("winograd2"));
  const std::string message = refusal(plan, winograd.pack(w));
  EXPECT_NE(message.find("packed as \"" + winograd.packing() + "\", expected \"" + plan.packing()),
            std::string::npos)
      << message;
  Stage deeper = few;
  deeper.c = 32;
  EXPECT_NE(refusal(plan, Plan(deeper, by("direct")).pack(numbers(w_shape(deeper), 1)))
                .find("weights: packed as"),
            std::string::npos);
  EXPECT_THROW(plan.pack(numbers(w_shape(deeper), 1)), Error);
  ConstTensorView elsewhere = w;
  elsewhere.device = {DeviceKind::cuda, 0};
  EXPECT_THROW(plan.pack(elsewhere), Error);
  EXPECT_TRUE(equal(result(plan, x), before));  // they are still there
}

TEST(PackedOnce, ByLayoutAndContent) {
  const Bound one(many, by("direct")), other(few, by("direct")), flipped(many, [] {
    PlanOptions options = by("direct");
    options.flip_filters = true;
    return options;
  }());
  const Tensor w = numbers({24, 3, 3, 16}, 1), same = numbers({24, 3, 3, 16}, 1),
               differs = numbers({24, 3, 3, 16}, 2);
  const auto packed = [](const Bound& bound, const Tensor& weights) {
    const Parameters parameters{.w = weights.data<float>()};
    return packed_once(bound, {&parameters, 1});
  };
  std::shared_ptr<const PackedWeights> first = packed(one, w);
  EXPECT_EQ(packed(other, same), first);
  EXPECT_NE(packed(one, differs), first);
  EXPECT_NE(packed(flipped, w), first);
  // They go with the last one that holds them.
  const std::weak_ptr<const PackedWeights> watched = first;
  first.reset();
  EXPECT_TRUE(watched.expired());
  EXPECT_NE(packed(one, w), nullptr);
}

TEST(PackedOnce, OneNumberOrItsPlaceChangesTheHash) {
  const auto hash = [](std::vector<float> weights, std::vector<float> bias) {
    ContentHash all;
    all.add(0, weights.data(), weights.size());
    if (!bias.empty()) all.add(1, bias.data(), bias.size());
    return all;
  };
  const ContentHash one = hash({1, 2, 3}, {4});
  EXPECT_EQ(hash({1, 2, 3}, {4}), one);
  EXPECT_NE(hash({1, 3, 2}, {4}), one);
  EXPECT_NE(hash({1, 2, 3, 4}, {}), one);
  EXPECT_NE(hash({1, 2}, {3, 4}), one);
  EXPECT_NE(hash({-0.0F}, {}), hash({0.0F}, {}));
}

}  // namespace
}  // namespace convoy
