// Stage: text round trip, derived shapes, and every reason that makes one illegal.
#include "convoy/stage.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "convoy/error.hpp"
#include "convoy/tensor.hpp"

namespace convoy {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_stage(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(StageText, ReadsTheDesignsExample) {
  const Stage expected{.dtype = DType::f16,
                       .n = 32,
                       .h = 56,
                       .w = 56,
                       .c = 64,
                       .k = 128,
                       .r = 3,
                       .s = 3,
                       .pad = 1,
                       .bias = true,
                       .act = relu,
                       .pool = max_pool(2)};
  EXPECT_EQ(parse_stage("f16:n32h56w56c64k128r3pad1+bias+relu+max2"), expected);
  EXPECT_EQ(to_text(expected), "f16:n32h56w56c64k128r3pad1+bias+relu+max2");
  EXPECT_EQ(parse_stage("f16:n32h56c64k128r3s3pad1+max2+relu+bias"), expected);
}

TEST(StageText, LongestKeywordWins) {
  const Stage stage = parse_stage("n2h9w7c4k6r3s2stride2x1pad1x0x2x1dil1x2groups2nchwout(f16)");
  EXPECT_EQ(stage.s, 2);
  EXPECT_EQ(stage.stride, (Extent{2, 1}));
  EXPECT_EQ(stage.pad, (Padding{1, 0, 2, 1}));
  EXPECT_EQ(stage.layout, Layout::nchw);
  EXPECT_EQ(stage.out, DType::f16);
}

// Draws any legal stage, with every rider.
Stage random_stage(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<Index>(random() % static_cast<unsigned>(n)); };
  const auto number = [&] { return std::uniform_real_distribution<float>(-3, 3)(random); };
  for (;;) {
    Stage s;
    s.dtype = std::array{DType::f32, DType::f16, DType::bf16, DType::u8}[below(4)];
    s.groups = 1 + below(3);
    s.n = 1 + below(4), s.h = 1 + below(20), s.w = 1 + below(20);
    s.c = s.groups * (1 + below(9)), s.k = s.groups * (1 + below(9));
    s.r = 1 + below(5), s.s = 1 + below(5);
    s.stride = {1 + below(3), 1 + below(3)};
    s.pad = {below(3), below(3), below(3), below(3)};
    s.dil = {1 + below(2), 1 + below(2)};
    if (below(2)) s.layout = Layout::nchw;
    if (below(3) == 0) s.out = std::array{DType::f32, DType::f16, DType::bf16}[below(3)];
    s.bias = below(2), s.norm = below(2), s.strict = below(2);
    const std::array acts{no_act,
                          relu,
                          relu6,
                          clip_to(-1.25F, 1e-7F),
                          leaky(number()),
                          integrate_fire(number()),
                          lif(1 + 1 / (1 + number() * number()), number())};
    s.act = acts[below(7)];
    if (s.act.is_neuron()) s.soft = below(2), s.hold = below(2), s.t = 1 + below(5);
    if (below(2)) {
      s.pool = Pool{{1 + below(3), 1 + below(3)},
                    {1 + below(3), 1 + below(3)},
                    {0, below(2)},
                    {1 + below(2), 1},
                    below(2) == 1};
      s.keep.idx = below(2);
    }
    s.keep.pre = below(2), s.keep.act = below(2);
    if (problems(s).empty()) return s;
  }
}

TEST(StageText, RoundTripsEveryLegalStage) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const Stage stage = random_stage(random);
    const std::string text = to_text(stage);
    ASSERT_EQ(parse_stage(text), stage) << "repro: " << text;
    ASSERT_EQ(to_text(parse_stage(text)), text);
    ASSERT_EQ(hash_of(parse_stage(text)), hash_of(stage));
  }
}

// Fills every field with anything, absurd values among them.
Stage any_stage(std::mt19937& random) {
  const auto below = [&](unsigned n) { return static_cast<Index>(random() % n); };
  const auto size = [&]() -> Index {
    constexpr Index odd[] = {0,
                             -1,
                             (Index{1} << 31) - 1,
                             Index{1} << 31,
                             Index{1} << 62,
                             std::numeric_limits<Index>::max(),
                             std::numeric_limits<Index>::min()};
    return below(60) == 0 ? odd[below(std::size(odd))] : 1 + below(below(8) == 0 ? 100000 : 3);
  };
  const auto pad = [&] { return below(2) ? 0 : size() / 2; };
  const auto number = [&]() -> float {
    constexpr float odd[] = {-0.0F,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::max(),
                             std::numeric_limits<float>::lowest(),
                             std::numeric_limits<float>::min(),
                             std::numeric_limits<float>::denorm_min(),
                             1e-30F,
                             1.0F / 3};
    if (below(3) == 0) return 0;
    return below(2) ? odd[below(std::size(odd))]
                    : std::uniform_real_distribution<float>(-3, 3)(random);
  };
  // Mostly an enumerator, else any byte.
  const auto code = [&](unsigned kinds) {
    return static_cast<std::uint8_t>(below(20) ? below(kinds) : below(256));
  };
  Stage s;
  s.dtype = static_cast<DType>(code(4));
  s.n = size(), s.c = size(), s.k = size();
  s.h = std::max<Index>(size(), 20), s.w = std::max<Index>(size(), 20);
  s.r = size(), s.s = size();
  s.stride = {size(), size()};
  s.pad = {pad(), pad(), pad(), pad()};
  s.dil = {size(), size()};
  s.groups = below(3) ? 1 : size();
  s.layout = static_cast<Layout>(code(2));
  if (below(3) == 0) s.out = static_cast<DType>(code(3));
  s.bias = below(2), s.norm = below(2), s.strict = below(2);
  s.act = std::array{no_act,
                     relu,
                     relu6,
                     clip_to(number(), number()),
                     leaky(number()),
                     integrate_fire(number()),
                     lif(number(), number())}[below(7)];
  if (below(20) == 0) s.act.kind = static_cast<Activation::Kind>(code(7));
  s.soft = below(4) == 0, s.hold = below(4) == 0;
  if (s.act.is_neuron() || below(8) == 0) s.t = size();
  if (below(2))
    s.pool =
        Pool{{size(), size()}, {size(), size()}, {pad(), pad()}, {size(), size()}, below(2) == 1};
  s.keep = {below(2) == 1, below(2) == 1, below(3) == 0};
  return s;
}

TEST(StageText, RoundTripsWhateverIsLegal) {
  std::mt19937 random(11);
  int legal = 0, with_act = 0;
  for (int i = 0; i < 400000; ++i) {
    const Stage stage = any_stage(random);
    const std::string text = to_text(stage);  // never fails, also where it is no text of a stage
    if (!problems(stage).empty()) continue;
    ++legal;
    with_act += stage.act.kind != Activation::Kind::none;
    const Stage parsed = parse_stage(text);
    ASSERT_EQ(parsed, stage) << text;
    ASSERT_EQ(hash_of(parsed), hash_of(stage)) << text;
  }
  EXPECT_GT(legal, 5000);
  EXPECT_GT(with_act, 500);
}

TEST(Stage, NamesWhatHasNoMeaning) {
  const Stage good = parse_stage("n1h8c4k4r3");
  const auto problem = [&](const auto& spoil) {
    Stage stage = good;
    spoil(stage);
    const auto found = problems(stage);
    EXPECT_EQ(found.size(), 1U);
    EXPECT_FALSE(to_text(stage).empty());
    return found.empty() ? std::string() : found[0];
  };
  using Kind = Activation::Kind;
  const std::string left_behind =
      "the activation has a parameter of another kind; make it with relu, clip_to(lo, hi) and so "
      "on, and do not change its kind";
  EXPECT_EQ(problem([](Stage& s) {
              s.act = leaky(5);
              s.act.kind = Kind::relu;
            }),
            left_behind);
  EXPECT_EQ(problem([](Stage& s) {
              s.act = clip_to(0.5F, 3);
              s.act.kind = Kind::leaky;
            }),
            left_behind);
  EXPECT_EQ(problem([](Stage& s) {
              s.act = clip_to(0, std::nanf(""));
              s.act.kind = Kind::none;
            }),
            left_behind);
  EXPECT_EQ(problem([](Stage& s) { s.act.kind = static_cast<Kind>(99); }),
            "the activation is number 99, expected one of Activation::Kind");
  EXPECT_EQ(problem([](Stage& s) { s.dtype = static_cast<DType>(77); }),
            "the input type is number 77, expected f32, f16, bf16 or u8");
  EXPECT_EQ(problem([](Stage& s) { s.out = static_cast<DType>(200); }),
            "the output type is number 200, expected f32, f16 or bf16");
  EXPECT_EQ(problem([](Stage& s) { s.layout = static_cast<Layout>(5); }),
            "the layout is number 5, expected nhwc or nchw");
  EXPECT_EQ(problem([](Stage& s) { s.pad = Padding((Index{1} << 31) - 1, 0); }),
            "the height of the convolution's output is 4294967300, expected at most 2147483647");
  EXPECT_EQ(to_text(static_cast<DType>(77)), "?");
  EXPECT_EQ(size_of(static_cast<DType>(77)), 4U);
}

TEST(Stage, EqualStagesHaveEqualHashes) {
  const Stage a = parse_stage("n1h8c4k4r3+clip(0,1)"), b = parse_stage("n1h8c4k4r3+clip(-0,1)");
  EXPECT_EQ(a, b);
  EXPECT_EQ(hash_of(a), hash_of(b));
  EXPECT_EQ(to_text(b), to_text(a));
}

// The same stage with defaults and with everything said.
TEST(Stage, DefaultsAreTheSameInTextAndInCpp) {
  const Stage brief{.n = 2, .h = 9, .c = 4, .k = 4, .r = 3, .pool = Pool{.window = 3}};
  const Stage full{.n = 2,
                   .h = 9,
                   .w = 9,
                   .c = 4,
                   .k = 4,
                   .r = 3,
                   .s = 3,
                   .out = DType::f32,
                   .pool = max_pool(3, 3)};
  EXPECT_EQ(brief, full);
  EXPECT_EQ(hash_of(brief), hash_of(full));
  EXPECT_EQ(to_text(brief), "n2h9w9c4k4r3+max3");
  EXPECT_EQ(to_text(full), to_text(brief));
  EXPECT_EQ(parse_stage("n2h9c4k4r3out(f32)+max3s3"), brief);
  EXPECT_TRUE(problems(brief).empty());
  EXPECT_EQ(shapes_of(brief).q, 7);
  EXPECT_EQ(shapes_of(brief).out_h, 2);  // windows of 3, 3 apart, on 7
  EXPECT_EQ(x_shape(brief), x_shape(full));
  EXPECT_EQ(w_shape(brief), (std::vector<Index>{4, 3, 3, 4}));
  EXPECT_EQ(y_shape(brief), (std::vector<Index>{2, 2, 2, 4}));
  const Stage normal = brief.normalised();
  EXPECT_EQ(normal.w, 9);
  EXPECT_EQ(normal.s, 3);
  EXPECT_EQ(normal.pool->stride, Extent{3});
  EXPECT_FALSE(full.normalised().out);
}

TEST(Stage, WhatDiffersIsNotEqual) {
  const Stage stage = parse_stage("n2h9c4k4r3+relu+max3");
  const auto differs = [&](const auto& change) {
    Stage other = stage;
    change(other);
    return !(other == stage) && to_text(other) != to_text(stage);
  };
  EXPECT_TRUE(differs([](Stage& s) { s.w = 8; }));
  EXPECT_TRUE(differs([](Stage& s) { s.s = 2; }));
  EXPECT_TRUE(differs([](Stage& s) { s.pool->stride = {0, 2}; }));
  EXPECT_TRUE(differs([](Stage& s) { s.pool->ceil = true; }));
  EXPECT_TRUE(differs([](Stage& s) { s.out = DType::f16; }));
  EXPECT_TRUE(differs([](Stage& s) { s.keep.pre = true; }));
  EXPECT_TRUE(differs([](Stage& s) { s.strict = true; }));
  // The default of u8 depends on the device: it is no type that could be left out.
  const Stage pixels = parse_stage("u8:n1h8c3k4r3");
  for (const DType out : {DType::f32, DType::f16}) {
    Stage other = pixels;
    other.out = out;
    EXPECT_NE(other, pixels);
  }
}

TEST(Activation, HasTheParametersOfItsKindAndNoOther) {
  const auto parameters = [](const Activation& act) {
    return std::array{act.lo(), act.hi(), act.slope(), act.tau(), act.threshold()};
  };
  using Five = std::array<float, 5>;
  EXPECT_EQ(parameters(no_act), Five{});
  EXPECT_EQ(parameters(relu), Five{});
  EXPECT_EQ(parameters(relu6), Five{});
  EXPECT_EQ(parameters(clip_to(-2, 3)), (Five{-2, 3, 0, 0, 0}));
  EXPECT_EQ(parameters(leaky(0.1F)), (Five{0, 0, 0.1F, 0, 0}));
  EXPECT_EQ(parameters(integrate_fire(0.5F)), (Five{0, 0, 0, 0, 0.5F}));
  EXPECT_EQ(parameters(lif(3, 0.5F)), (Five{0, 0, 0, 3, 0.5F}));
  // No bound is -0: where a pool meets zeros of both signs it would show.
  EXPECT_FALSE(std::signbit(clip_to(-0.0F, 1).lo()));
  EXPECT_FALSE(std::signbit(clip_to(-1, -0.0F).hi()));
  EXPECT_FALSE(std::signbit(leaky(-0.0F).slope()));
}

TEST(StageText, ErrorsPointAtThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "n is missing"},
      {"n1h8c4k4", "r is missing"},
      {"n1h8c4k4r3+bias+bias", "column 17: 'bias' is given twice"},
      {"n1n2h8c4k4r3", "column 3: 'n' is given twice"},
      {"n0h8c4k4r3", "n is 0, expected at least 1"},
      {"n-1h8c4k4r3", "expected a whole number"},
      {"n99999999999999999999h8c4k4r3", "does not fit in 64 bits"},
      {"n1h8c4k4r3+relu+relu6", "a second activation"},
      {"n1h8c4k4r3+gelu", "'gelu' is not supported yet"},
      {"n1h8c4k4r3+avg2", "'avg' is not supported yet"},
      {"n1h8c4k4r3+swish", "unknown rider 'swish'"},
      {"n1h8c4k4r3groups3", "groups is 3, expected a divisor of c = 4"},
      {"n1h8c4k4r3+soft", "soft needs a neuron"},
      {"n1h8c4k4r3+t2", "t2 needs a neuron"},
      {"n1h8c4k4r3+keep(idx)", "keep(idx) needs a pool"},
      {"n1h8c4k4r3+max9", "pool reaches over 9 pixels of height, its padded image has 6"},
      {"n1h8c4k4r3+max2s0", "column 17: the pool's stride is 0x0, expected at least 1"},
      {"n1h8c4k4r3+max2p2", "at most half of its window"},
      {"n1h8c4k4r9", "the filter reaches over 9 pixels of height, the padded image has 8"},
      {"n1h8c4k4r3+clip(1,0)", "expected the lower bound first"},
      {"n1h8c4k4r3+leaky(inf)", "expected a finite slope"},
      {"i8:n1h8c4k4r3", "unknown type 'i8'"},
      {"n1h8c4k4r3 +bias", "column 11: found a space"},
      {"n1h8c4k4r3+relu,", "expected '+' and a rider, or the end"},
      {"n2147483647h2147483647c2147483647k1r1", "overflows"},
      {"n4294967296h1c1k1r1", "n is 4294967296, expected 1 to 2147483647"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_NE(error_of(text).find(expected), std::string::npos)
        << text << " gave: " << error_of(text);
}

TEST(StageShapes, FollowTheFormula) {
  const Shapes shapes = shapes_of(parse_stage("n2h224w224c3k64r7stride2pad3+bias+relu+max3s2p1"));
  EXPECT_EQ(shapes.p, 112);
  EXPECT_EQ(shapes.out_h, 56);
  EXPECT_EQ(shapes.gemm_m, 2 * 112 * 112);
  EXPECT_EQ(shapes.gemm_k, 147);
  EXPECT_EQ(shapes.macs, Index{2} * 112 * 112 * 64 * 147);
}

TEST(StageShapes, CeilPoolIsPyTorchs) {
  // torch.nn.MaxPool2d(2, 2, ceil_mode=True) on 7 gives 4; (3, 2, 1, ceil) on 6 gives 4;
  // (2, 3, 1, ceil) on 5: the last window would start in the padding after the image and is
  // dropped.
  EXPECT_EQ(shapes_of(parse_stage("n1h7c1k1r1+max2ceil")).out_h, 4);
  EXPECT_EQ(shapes_of(parse_stage("n1h6c1k1r1+max3s2p1ceil")).out_h, 4);
  EXPECT_EQ(shapes_of(parse_stage("n1h5c1k1r1+max2s3p1ceil")).out_h, 2);
}

TEST(StageShapes, EveryProblemIsNamed) {
  const auto found = problems(Stage{.n = 0, .h = 4, .w = 4, .c = -1, .k = 1, .r = 1, .s = 1});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], "n is 0, expected 1 to 2147483647");
}

}  // namespace
}  // namespace convoy
