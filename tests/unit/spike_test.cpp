// The kernels for spikes against the reference. Weights are small multiples of 1/32, so that every
// sum is exact and every spike must be the reference's.
#include "cpu/families.hpp"
#include "cpu/spike/spike_chain.hpp"
#include "cpu/spike/spike_conv.hpp"
#include "cpu/spike/spike_first.hpp"
#include "cpu/spike/spike_linear.hpp"
#include "spike_case.hpp"

namespace convoy::cpu {
namespace {

TEST(SpikeBits, PackAndUnpackAreInverse) {
  Draw draw(1);
  for (int round = 0; round < 50; ++round) {
    const SpikeLayout layout{draw.index(1, 5), draw.index(1, 5), draw.index(1, 20),
                             Padding(1, 2, 0, 1), false};
    const Index steps = draw.index(1, 3), n = draw.index(1, 3),
                values = n * layout.h * layout.w * layout.c;
    const std::vector<float> spikes = draw.spikes(steps * values, 0.4);
    Bits bits(layout, steps, n, 0);
    pack_spikes(layout, steps, n, spikes.data(), values, bits.block);
    std::vector<float> back(spikes.size());
    unpack_spikes(layout, steps, n, bits.block, back.data(), values);
    EXPECT_EQ(back, spikes);
  }
}

TEST(SpikeConv, EverySpikeIsTheReferences) {
  Draw draw(2);
  for (int round = 0; round < 300; ++round) {
    Stage s;
    s.n = draw.index(1, 3), s.c = draw.index(1, 30), s.k = draw.index(1, 40),
    s.r = draw.index(1, 5), s.s = draw.index(1, 5);
    s.h = draw.index(5, 11), s.w = draw.index(5, 11), s.t = draw.index(1, 5);
    s.pad = Padding(draw.index(0, 2), draw.index(0, 2), draw.index(0, 2), draw.index(0, 2));
    if (draw.index(0, 3) == 0) s.stride = {draw.index(1, 2), draw.index(1, 3)};
    s.act = draw.coin() ? integrate_fire(draw.coin() ? 1.0F : 0.5F) : lif(2, 0.75F);
    s.soft = draw.coin(), s.bias = draw.coin();
    if (draw.coin()) s.pool = max_pool(2);
    if (!problems(s).empty()) continue;
    ASSERT_TRUE(refusals_of<SpikeConv>(s).empty());
    const Shapes shapes = shapes_of(s);
    std::vector<float> w = draw.dyadic(shapes.w_elements, 6), bias = draw.dyadic(s.k, 16);
    std::vector<float> x = draw.spikes(shapes.x_elements, 0.3);
    const SpikeLayout in{s.h, s.w, s.c, s.pad, false};
    const SpikeLayout out{shapes.out_h, shapes.out_w, s.k, Padding(draw.index(0, 2)), false};
    Bits from(in, s.t, s.n, 0), to(out, s.t, s.n, 0);
    pack_spikes(in, s.t, s.n, x.data(), shapes.x_elements / s.t, from.block);
    const SpikeConv conv(s, w.data(), s.bias ? bias.data() : nullptr, in, out);
    conv.run(s.n, from.block, to.block);
    const auto expected = expected_spikes(s, x, w, bias);
    expect_equal(expected, out, s.t, s.n, to.block, s);
    // Bits beyond the channels and the border of the next layer are 0.
    std::size_t ones = 0, fired = 0;
    for (const std::uint8_t byte : to.data)
      ones += static_cast<std::size_t>(__builtin_popcount(byte));
    for (const double y : expected) fired += y != 0;
    EXPECT_EQ(ones, fired) << to_text(s);
  }
}

TEST(SpikeConv, LargeTablesUseFourBitGroups) {
  Draw draw(3);
  Stage s;
  s.n = 2, s.c = 96, s.k = 48, s.r = s.s = 3, s.h = s.w = 6, s.t = 2, s.pad = 1,
  s.act = integrate_fire(1), s.pool = max_pool(2);
  std::vector<float> w = draw.dyadic(shapes_of(s).w_elements, 3), bias;
  std::vector<float> x = draw.spikes(shapes_of(s).x_elements, 0.2);
  const SpikeLayout in{6, 6, 96, Padding(1), false}, out{3, 3, 48, Padding(0), false};
  Bits from(in, 2, 2, 0), to(out, 2, 2, 0);
  pack_spikes(in, 2, 2, x.data(), shapes_of(s).x_elements / 2, from.block);
  SpikeConv(s, w.data(), nullptr, in, out).run(2, from.block, to.block);
  expect_equal(expected_spikes(s, x, w, bias), out, 2, 2, to.block, s);
}

TEST(SpikeLinear, EverySpikeIsTheReferences) {
  Draw draw(4);
  for (int round = 0; round < 300; ++round) {
    Stage s;
    s.n = draw.index(1, 4), s.h = s.w = s.r = s.s = 1, s.c = 8 * draw.index(1, 50),
    s.k = draw.index(1, 300), s.t = draw.index(1, 4);
    s.act = draw.coin() ? integrate_fire(1) : lif(2, 0.5F);
    s.soft = draw.coin(), s.bias = draw.coin();
    std::vector<float> w = draw.dyadic(s.k * s.c, 6), bias = draw.dyadic(s.k, 16);
    std::vector<float> x = draw.spikes(s.t * s.n * s.c, draw.coin() ? 0.1 : 0.6);
    const SpikeLayout in{1, 1, s.c, {}, false}, out{1, 1, s.k, {}, false};
    Bits from(in, s.t, s.n, 0xff), to(out, s.t, s.n, 0xff);
    pack_spikes(in, s.t, s.n, x.data(), s.n * s.c, from.block);
    const SpikeLinear linear(s, s.t, w.data(), s.bias ? bias.data() : nullptr, in);
    std::vector<float> scratch(static_cast<std::size_t>(SpikeLinear::scratch_floats(s)) + 16);
    void* at = scratch.data();
    std::size_t room = scratch.size() * sizeof(float);
    linear.run(s.n, from.block, to.block,
               static_cast<float*>(std::align(
                   64, static_cast<std::size_t>(SpikeLinear::scratch_floats(s)) * sizeof(float), at,
                   room)));
    const auto expected = expected_spikes(s, x, w, bias);
    expect_equal(expected, out, s.t, s.n, to.block, s);

    Stage plain = s;
    plain.act = no_act, plain.soft = false, plain.t = 1, plain.n = s.n * s.t;
    const SpikeLinear mean(plain, s.t, w.data(), s.bias ? bias.data() : nullptr, in);
    std::vector<float> y(static_cast<std::size_t>(s.n * s.k));
    mean.run_mean(s.n, from.block, y.data(), static_cast<float*>(at));
    const auto sums = expected_spikes(plain, x, w, bias);
    for (std::size_t i = 0; i < y.size(); ++i) {
      double sum = 0;
      for (Index t = 0; t < s.t; ++t) sum += sums[i + static_cast<std::size_t>(t) * y.size()];
      ASSERT_EQ(y[i], static_cast<float>(sum) / static_cast<float>(s.t)) << to_text(plain);
    }
  }
}

TEST(SpikeLinear, RefusesPadding) {
  Stage s;
  s.h = s.w = s.r = s.s = 1, s.c = 8, s.k = 4, s.act = integrate_fire(1);
  EXPECT_TRUE(refusals_of<SpikeLinear>(s).empty());
  s.pad = Padding(0, 0, 1, 0);
  EXPECT_EQ(refusals_of<SpikeLinear>(s),
            std::vector<std::string>{"padding is asked for, expected none"});
}

// Weights of any size here: the spikes of this kernel are those of exact arithmetic.
void run_first(const SpikeFirst& first, const Stage& s, const std::vector<std::uint8_t>& pixels,
               const SpikeBlock& to) {
  const auto bytes = static_cast<std::size_t>(SpikeFirst::scratch_bytes(s));
  std::vector<std::byte> scratch(bytes + 64);
  void* at = scratch.data();
  std::size_t room = scratch.size();
  first.run(s.n, pixels.data(), to, static_cast<std::byte*>(std::align(64, bytes, at, room)));
}

TEST(SpikeFirst, EverySpikeIsThatOfExactArithmetic) {
  Draw draw(5);
  for (int round = 0; round < 200; ++round) {
    Stage s;
    s.dtype = DType::u8, s.hold = true;
    s.n = draw.index(1, 3), s.c = draw.index(1, 4), s.k = draw.index(1, 20), s.r = draw.index(1, 5),
    s.s = draw.index(1, 5);
    s.h = draw.index(5, 16), s.w = draw.index(5, 16), s.t = draw.index(1, 2);
    if (draw.index(0, 3) == 0) s.stride = {draw.index(1, 2), draw.index(1, 3)};
    if (draw.index(0, 3) == 0) s.dil = {draw.index(1, 2), draw.index(1, 2)};
    s.act = integrate_fire(draw.index(0, 4) == 0 ? -0.25F : draw.coin() ? 1.0F : 0.3F);
    s.soft = draw.coin(), s.bias = draw.coin();
    if (draw.coin()) s.pool = max_pool(2);
    if (!problems(s).empty()) continue;
    const Shapes shapes = shapes_of(s);
    // Dyadic weights put many sums exactly on the threshold, where the bounds leave them open.
    const bool dyadic = draw.coin();
    std::vector<float> w =
        dyadic ? draw.dyadic(shapes.w_elements, 8) : draw.normal(shapes.w_elements, 0.3F);
    std::vector<float> bias = dyadic ? draw.dyadic(s.k, 16) : draw.normal(s.k, 0.3F);
    std::vector<float> input;
    for (Index c = 0; c < s.c; ++c)
      for (int u = 0; u < 256; ++u)
        input.push_back(dyadic ? static_cast<float>(u - 128) / 32
                               : (static_cast<float>(u) / 255.0F - 0.1F * static_cast<float>(c)) /
                                     0.5F);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(s.n * s.h * s.w * s.c));
    for (auto& pixel : pixels)
      pixel = static_cast<std::uint8_t>(dyadic ? draw.index(112, 144) : draw.index(0, 255));
    const bool two = s.t == 2;
    const SpikeLayout out{shapes.out_h, shapes.out_w, s.k, Padding(1), two};
    Reasons why = refusals_of<SpikeFirst>(s);
    SpikeFirst::refuse_weights(s, w.data(), bias.data(), input.data(), why);
    ASSERT_EQ(why, Reasons());
    const SpikeFirst first(s, w.data(), s.bias ? bias.data() : nullptr, input.data(), out);
    Bits to(out, s.t, s.n, 0);
    run_first(first, s, pixels, to.block);

    Stage floats = s;
    floats.dtype = DType::f32;
    std::vector<float> x;
    for (std::size_t i = 0; i < pixels.size(); ++i)
      x.push_back(input[i % static_cast<std::size_t>(s.c) * 256 + pixels[i]]);
    expect_equal(expected_spikes(floats, x, w, bias), out, s.t, s.n, to.block, s);
  }
}

// Half of an odd number of the smallest fp32 steps is no fp32 number.
TEST(SpikeFirst, AThresholdThatHasNoHalf) {
  constexpr float step = std::numeric_limits<float>::denorm_min();
  for (const float th : {step, 3 * step, 5 * step})
    for (float x = 0; x <= th; x += step) {
      Stage s;
      s.dtype = DType::u8, s.hold = true, s.bias = true, s.t = 2, s.h = s.w = s.c = s.k = 1;
      s.r = s.s = 1, s.act = integrate_fire(th);
      const std::vector<float> w{0}, input(256, 1.0F);
      const SpikeLayout out{1, 1, 1, Padding(0), true};
      const SpikeFirst first(s, w.data(), &x, input.data(), out);
      Bits to(out, 2, 1, 0);
      run_first(first, s, {0}, to.block);
      std::vector<float> spikes(2);
      unpack_spikes(out, 2, 1, to.block, spikes.data(), 1);
      EXPECT_EQ(spikes[0], x >= th ? 1.0F : 0.0F) << x / step << " of " << th / step;
      EXPECT_EQ(spikes[1], x + x >= th ? 1.0F : 0.0F) << x / step << " of " << th / step;
    }
}

TEST(SpikeFirst, RefusesWhatThresholdsCannotDo) {
  Stage s;
  s.dtype = DType::u8, s.hold = true, s.t = 2, s.h = s.w = 8, s.c = 1, s.k = 8, s.r = s.s = 3,
  s.act = integrate_fire(1);
  std::vector<float> w(72, 0.1F), input(256, 1.0F);
  const auto refused = [&](auto change) {
    Stage other = s;
    change(other);
    Reasons why = refusals_of<SpikeFirst>(other);
    SpikeFirst::refuse_weights(other, w.data(), nullptr, input.data(), why);
    return !why.empty();
  };
  EXPECT_FALSE(refused([](Stage&) {}));
  EXPECT_TRUE(
      refused([](Stage& o) { o.t = 3; }));  // inputs 0.35 and 0.5 pool to 0,1,1, not to 0,1,0
  EXPECT_TRUE(refused([](Stage& o) { o.act = lif(2, 1); }));
  EXPECT_TRUE(refused([](Stage& o) { o.hold = false; }));
  EXPECT_TRUE(refused([](Stage& o) { o.pad = 1; }));
  EXPECT_TRUE(refused([](Stage& o) { o.pool = max_pool(3); }));
  w[5] = 1e38F;
  EXPECT_TRUE(refused([](Stage&) {}));
}

// They were read as f32.
TEST(SpikeChain, RefusesSpikesOfOtherTypes) {
  const auto why = [](const char* text) {
    return spike_chain().refusals(parse_chain(text), cpu_machine(1));
  };
  EXPECT_EQ(why("constants > spikes > n1h8c8k8r3+if(1)"), Reasons());
  EXPECT_EQ(why("constants > spikes > f16:n1h8c8k8r3out(f32)+if(1)"),
            Reasons{"x is f16, expected f32 or u8"});
}

TEST(SpikeChain, RefusesImagesWhoseTapsHaveNoPlaceInThirtyTwoBits) {
  const auto refusals = [](const char* text) {
    Reasons why;
    refuse_spike_chain(parse_chain(text), why);
    return why;
  };
  EXPECT_TRUE(refusals("spikes > n1h32767w65536c8k8r2+if(1)").empty());
  const Reasons one = refusals("spikes > n1h32768w65536c8k8r2+if(1)");
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one.front(), "the spikes of an image take 2^31 bytes or more");
  EXPECT_EQ(
      refusals("spikes > n1h2w2c8k8r1pad32767x32768+if(1) > n1h65536w65538c8k8r1+if(1)").size(),
      2U);
}

}  // namespace
}  // namespace convoy::cpu
