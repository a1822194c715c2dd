// Sums of the weights of inputs that fired, against the reference: exact on small multiples of
// 1/32.
#include "cpu/spike/spike_events.hpp"

#include "cpu/spike/spike_conv.hpp"
#include "spike_case.hpp"

namespace convoy::cpu {
namespace {

Buffer<float> scratch_of(const Stage& stage, Index steps) {
  return Buffer<float>(static_cast<std::size_t>(SpikeEvents::scratch_floats(stage, steps).value()));
}

// Of whatever size: what SpikeEvents::pays says is about speed.
TEST(SpikeEvents, EverySpikeIsTheReferences) {
  Draw draw(6);
  for (int round = 0; round < 300; ++round) {
    Stage s;
    s.n = draw.index(1, 3), s.c = draw.index(1, 140), s.k = draw.index(1, 150),
    s.r = draw.index(1, 3), s.s = draw.index(1, 3);
    s.h = draw.index(1, 9), s.w = draw.index(1, 9), s.t = draw.index(1, 9);
    if (draw.index(0, 7) == 0) s.h = draw.index(1, 4), s.w = draw.index(40, 80);  // several tiles
    if (draw.coin()) s.dil = {draw.index(1, 2), draw.index(1, 2)};
    s.pad = Padding(draw.index(0, 2), draw.index(0, 2), draw.index(0, 2), draw.index(0, 2));
    if (draw.index(0, 3) == 0) s.stride = {draw.index(1, 2), draw.index(1, 3)};
    s.act = draw.coin() ? integrate_fire(draw.coin() ? 1.0F : 0.5F) : lif(2, 0.75F);
    s.soft = draw.coin(), s.bias = draw.coin();
    if (draw.coin()) s.pool = max_pool(2);
    // A linear layer's channels are whole bytes, and it has no border.
    if (draw.index(0, 3) == 0 || (s.h == 1 && s.w == 1 && s.r == 1 && s.s == 1)) {
      s.h = s.w = s.r = s.s = 1, s.c = 8 * draw.index(1, 40), s.n = draw.index(1, 40);
      s.pad = 0, s.stride = 1, s.dil = 1, s.pool.reset();
    }
    if (!problems(s).empty() || !refusals_of<SpikeConv>(s).empty()) continue;
    const Shapes shapes = shapes_of(s);
    std::vector<float> w = draw.dyadic(shapes.w_elements, 3), bias = draw.dyadic(s.k, 16);
    std::vector<float> x = draw.spikes(shapes.x_elements, draw.coin() ? 0.1 : 0.9);
    const SpikeLayout in{s.h, s.w, s.c, s.pad, false};
    const SpikeLayout out{shapes.out_h, shapes.out_w, s.k, Padding(draw.index(0, 2)), false};
    Bits from(in, s.t, s.n, 0), to(out, s.t, s.n, 0);
    pack_spikes(in, s.t, s.n, x.data(), shapes.x_elements / s.t, from.block);
    const SpikeEvents events(s, s.t, w.data(), s.bias ? bias.data() : nullptr, in, out);
    const Buffer<float> scratch = scratch_of(s, s.t);
    events.run(s.n, from.block, to.block, scratch.data());
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

TEST(SpikeEvents, MeanOfALinearLayerIsTheReferences) {
  Draw draw(7);
  for (int round = 0; round < 100; ++round) {
    Stage s;
    const Index steps = draw.index(1, 4), n = draw.index(1, 40);
    s.n = n * steps, s.h = s.w = s.r = s.s = 1, s.c = 8 * draw.index(1, 40),
    s.k = draw.index(1, 150), s.bias = draw.coin();
    std::vector<float> w = draw.dyadic(s.k * s.c, 6), bias = draw.dyadic(s.k, 16);
    std::vector<float> x = draw.spikes(s.n * s.c, 0.3);
    const SpikeLayout in{1, 1, s.c, {}, false};
    Bits from(in, steps, n, 0xff);
    pack_spikes(in, steps, n, x.data(), n * s.c, from.block);
    const SpikeEvents events(s, steps, w.data(), s.bias ? bias.data() : nullptr, in, {});
    const Buffer<float> scratch = scratch_of(s, steps);
    std::vector<float> y(static_cast<std::size_t>(n * s.k));
    events.run_mean(n, from.block, y.data(), scratch.data());
    const auto sums = expected_spikes(s, x, w, bias);
    for (std::size_t i = 0; i < y.size(); ++i) {
      double sum = 0;
      for (Index t = 0; t < steps; ++t) sum += sums[i + static_cast<std::size_t>(t) * y.size()];
      ASSERT_EQ(y[i], static_cast<float>(sum) / static_cast<float>(steps)) << to_text(s);
    }
  }
}

// The order of summation, whatever the tile: weights of which no sum is exact.
TEST(SpikeEvents, SumsAreInOrder) {
  Draw draw(8);
  for (const Index steps : {1, 3, 4, 6, 42}) {  // of 42, a tile has 6 images
    Stage s;
    s.n = 40 * steps, s.h = s.w = s.r = s.s = 1, s.c = 200, s.k = 70;
    const std::vector<float> w = draw.normal(s.k * s.c, 1);
    const std::vector<float> x = draw.spikes(s.n * s.c, 0.4);
    const SpikeLayout in{1, 1, s.c, {}, false};
    Bits from(in, steps, 40, 0);
    pack_spikes(in, steps, 40, x.data(), 40 * s.c, from.block);
    const SpikeEvents events(s, steps, w.data(), nullptr, in, {});
    const Buffer<float> scratch = scratch_of(s, steps);
    std::vector<float> y(static_cast<std::size_t>(40 * s.k));
    events.run_mean(40, from.block, y.data(), scratch.data());
    for (Index i = 0; i < 40; ++i)
      for (Index k = 0; k < s.k; ++k) {
        float mean = 0;
        for (Index first = 0; first < steps; first += 4) {
          const Index of_group = std::min<Index>(steps - first, 4);
          float sums[16] = {};
          for (Index c = 0; c < s.c; ++c) {
            int pattern = 0;
            for (Index t = 0; t < of_group; ++t)
              if (x[static_cast<std::size_t>(((first + t) * 40 + i) * s.c + c)] != 0)
                pattern |= 1 << t;
            if (pattern) sums[pattern] += w[static_cast<std::size_t>(k * s.c + c)];
          }
          for (Index t = 0; t < of_group; ++t) {
            float sum = 0;
            for (int pattern = 1; pattern < 16; ++pattern)
              if (pattern >> t & 1) sum += sums[pattern];
            mean = first + t == 0 ? sum : mean + sum;
          }
        }
        ASSERT_EQ(y[static_cast<std::size_t>(i * s.k + k)],
                  steps > 1 ? mean / static_cast<float>(steps) : mean)
            << "image " << i << ", filter " << k << ", " << steps << " steps";
      }
  }
}

// Behind the first layer of two steps, whose second step holds only the spikes that are new.
TEST(SpikeEvents, AddsIncrementsToTheStepBefore) {
  Draw draw(9);
  for (const bool linear : {false, true}) {
    Stage s;
    s.n = 3, s.c = 72, s.k = 80, s.t = 2, s.act = integrate_fire(1);
    s.h = s.w = linear ? 1 : 6, s.r = s.s = linear ? 1 : 3;
    const Shapes shapes = shapes_of(s);
    std::vector<float> w = draw.dyadic(shapes.w_elements, 3), bias;
    std::vector<float> x = draw.spikes(shapes.x_elements, 0.2), added = x;
    const std::size_t step = x.size() / 2;
    for (std::size_t i = 0; i < step; ++i) {
      if (x[i] != 0) added[step + i] = 0;
      if (x[i] != 0) x[step + i] = 1;
    }
    const SpikeLayout in{s.h, s.w, s.c, {}, true}, out{shapes.out_h, shapes.out_w, s.k, {}, false};
    Bits from(in, 2, s.n, 0), to(out, 2, s.n, 0);
    pack_spikes(in, 2, s.n, added.data(), static_cast<Index>(step), from.block);
    const SpikeEvents events(s, 2, w.data(), nullptr, in, out);
    const Buffer<float> scratch = scratch_of(s, 2);
    events.run(s.n, from.block, to.block, scratch.data());
    expect_equal(expected_spikes(s, x, w, bias), out, 2, s.n, to.block, s);
  }
}

// Tables of conv2 and fc1 of SpikingJelly's network for Fashion-MNIST outgrow the caches; those of
// the demo's layers do not.
TEST(SpikeEvents, PaysWhereTablesAreLarge) {
  EXPECT_TRUE(SpikeEvents::pays(parse_stage("n32h14c128k128r3pad1+if(1)+t4")));
  EXPECT_TRUE(SpikeEvents::pays(parse_stage("n32h1c6272k2048r1+if(1)+t4")));
  EXPECT_FALSE(SpikeEvents::pays(parse_stage("n32h12c8k16r5+if(1)+t2")));
  EXPECT_FALSE(SpikeEvents::pays(parse_stage("n32h1c256k128r1+if(1)+t2")));
}

// With a border of padding y is not 1x1: it is no linear layer.

}  // namespace
}  // namespace convoy::cpu
