// The few_filters family: what a launch computes, lane by lane on the host, its refusals, and on a
// GPU slices, odd channels and tiles.
#include "cuda/any/few_filters.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "bench/fit/h200.hpp"
#include "core/shape_list.hpp"
#include "cuda/families.hpp"
#include "gpu_case.hpp"
#include "math/index_map.hpp"
#include "plan/select.hpp"
#include "reference/reference.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

using cuda::few_filters_pixels;

// conv + bias as the kernel takes it: each strip by its lanes, then the exchange of their sums.
std::vector<float> by_lanes(const GpuCase& one) {
  const Stage& stage = one.stage;
  const Shapes shapes = shapes_of(stage);
  const cuda::FewFiltersLayout layout = cuda::few_filters_layout(stage);
  const cuda::FewFiltersChannels& channels = layout.channels;
  const std::vector<float> w = cuda::few_filters_weights(stage, one.w.data<float>());
  const float* const x = one.x.data<float>();
  math::ConvAxis<int> rows = math::conv_rows<int>(stage), columns = math::conv_columns<int>(stage);
  if (layout.flat) rows.size = 1, columns.size = static_cast<int>(layout.q);
  const auto filters = static_cast<std::size_t>(layout.filters),
             apart = static_cast<std::size_t>(channels.weights_apart());
  std::vector<float> y(static_cast<std::size_t>(shapes.pre_elements), NAN);
  for (Index strip = 0; strip < layout.all_strips(); ++strip) {
    const cuda::FewFiltersPlace at =
        cuda::few_filters_place(static_cast<unsigned>(strip), static_cast<unsigned>(layout.p),
                                static_cast<unsigned>(layout.strips));
    using OfLane = std::array<std::vector<float>, few_filters_pixels>;
    std::vector<OfLane> sums(static_cast<std::size_t>(channels.lanes));
    for (std::size_t lane = 0; lane < sums.size(); ++lane) {
      for (std::vector<float>& pixel : sums[lane]) pixel.assign(filters, 0.0F);
      std::size_t weight = lane * static_cast<std::size_t>(channels.vector);
      for (int block = 0; block < channels.blocks; ++block) {
        const int c = block * channels.of_block() + static_cast<int>(lane) * channels.vector;
        for (int r = 0; r < stage.r; ++r) {
          for (int s = 0; s < stage.s; ++s, weight += filters * apart) {
            for (int i = 0; i < few_filters_pixels; ++i) {
              const int row = rows.at(at.p, r), column = columns.at(at.q + i, s);
              if (c >= stage.c || !rows.inside(row) || !columns.inside(column)) continue;
              const Index pixel = layout.flat ? column : (at.n * stage.h + row) * stage.w + column;
              for (std::size_t k = 0; k < filters; ++k)
                for (int e = 0; e < channels.vector; ++e) {
                  float& sum = sums[lane][static_cast<std::size_t>(i)][k];
                  sum = std::fma(x[pixel * stage.c + c + e],
                                 w.at(weight + k * apart + static_cast<std::size_t>(e)), sum);
                }
            }
          }
        }
      }
    }
    std::size_t left = few_filters_pixels;
    for (std::size_t offset = 1; offset < sums.size(); offset *= 2) {
      const std::vector<OfLane> before = sums;
      const std::size_t half = left / 2;
      for (std::size_t lane = 0; lane < sums.size(); ++lane) {
        // As the kernel has it: one pixel left is added on both sides.
        const std::size_t keeps = half > 0 && (lane & offset) != 0 ? half : 0;
        for (std::size_t i = 0; i < std::max<std::size_t>(half, 1); ++i)
          for (std::size_t k = 0; k < filters; ++k)
            sums[lane][i][k] = before[lane][keeps + i][k] + before[lane ^ offset][keeps + i][k];
      }
      left = std::max<std::size_t>(half, 1);
    }
    for (int lane = 0; lane < cuda::few_filters_least_lanes; ++lane) {
      const int q = at.q + cuda::few_filters_pixel_of(lane);
      if (q >= layout.q) continue;
      const Index pixel = (at.n * layout.p + at.p) * layout.q + q;
      for (Index k = 0; k < stage.k; ++k)
        y.at(static_cast<std::size_t>(pixel * stage.k + k)) =
            sums[static_cast<std::size_t>(lane)][0][static_cast<std::size_t>(k)] +
            (stage.bias ? one.bias.data<float>()[k] : 0.0F);
    }
  }
  return y;
}

TEST(FewFilters, LanesTogetherMakeTheConvolution) {
  for (Stage stage : read_shape_list(source_path("tests/cuda/few_filters-stages.txt"))) {
    stage.act = no_act;
    stage.n = std::min<Index>(stage.n, 3);
    SCOPED_TRACE(to_text(stage));
    GpuCase one(stage, Values::integers, {});
    Threads threads(1);
    const std::vector<double> want =
        reference::Oracle(one.stage, one.w, one.operands(), reference::Sum::exact).all(threads).y;
    const std::vector<float> got = by_lanes(one);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << i;
  }
}

TEST(FewFilters, ChannelsFillTheirLanesAndFollowFromCAlone) {
  for (Index c = 16; c <= 2000; ++c) {
    const cuda::FewFiltersChannels channels = cuda::few_filters_channels(c);
    EXPECT_EQ(channels.vector, c % 4 == 0 ? 4 : 1);
    const Index padded = Index{channels.blocks} * channels.of_block();
    EXPECT_GE(padded, c);
    EXPECT_LT(padded - channels.of_block(), c);
    // At most an eighth more than with the fewest lanes, whose blocks are of 32 or 8.
    const Index of_least = cuda::few_filters_least_lanes * channels.vector;
    EXPECT_LE(8 * padded, 9 * ((c + of_least - 1) / of_least * of_least)) << c;
  }
  EXPECT_EQ(cuda::few_filters_channels(256).lanes, 32);
  EXPECT_EQ(cuda::few_filters_channels(300).lanes, 16);
  EXPECT_EQ(cuda::few_filters_channels(64).lanes, 16);
}

TEST(FewFilters, RefusesWithEveryReason) {
  const auto why = [](const char* text) { return cuda::few_filters_refusals(parse_stage(text)); };
  EXPECT_EQ(why("n1h8c64k8r3"), std::vector<std::string>());
  EXPECT_EQ(why("n1h8c64k9r3"), std::vector<std::string>{"K = 9: expected 8 at most"});
  EXPECT_EQ(why("n1h8c15k3r3"), std::vector<std::string>{"C = 15: expected 16 or more"});
  EXPECT_EQ(why("f16:n1h8c64k3r3"),
            (std::vector<std::string>{"x is f16, expected f32", "y is f16, expected f32"}));
  EXPECT_EQ(why("n1h8c64k8r3groups2nchw+norm+bias+relu+max2+keep(pre)").size(), 5U);
  EXPECT_EQ(why("n1h8c64k8r3+if(1)").size(), 1U);
}

// Where one of the two takes 370 us (window, measured), it is no close choice.
TEST(FewFilters, IsChosenForFewFiltersInF32) {
  const Machine machine = cuda::machine_of(cuda::h200());
  for (const auto& [text, kernel] :
       {std::pair("n64h32w32c256k3r3pad1+bias+relu+max2", "few_filters_pool"),
        std::pair("n8h40w40c300k3r3pad1+bias+relu", "few_filters"),
        std::pair("n8h128c64k2r1+bias", "few_filters")})
    EXPECT_EQ(select(parse_stage(text), machine, {}, nullptr).kernel().name(), kernel) << text;
}

class GpuFewFilters : public GpuTest {};

TEST_F(GpuFewFilters, TakesAnyChannelsAndUpToEightFilters) {
  int k = 0;
  for (Index c = 16; c <= 300; c += c < 40 ? 1 : 13) {
    Stage stage = parse_stage("n2h7w11c16k1r3pad1+bias+relu");
    stage.c = c;
    stage.k = k++ % 8 + 1;
    expect_bits_of_general(to_text(stage).c_str(), "few_filters");
    stage.s = 2;
    stage.stride = Extent(1, 2);
    expect_bits_of_general(to_text(stage).c_str(), "few_filters");
  }
}

TEST_F(GpuFewFilters, TilesAndBatchesGiveTheSameBits) {
  for (const char* text : {"n9h11w13c100k3r3pad1+bias+relu", "n9h11w13c67k8r3pad1+bias",
                           "n9h5w7c256k6r1+bias+leaky(0.1)"}) {
    SCOPED_TRACE(text);
    expect_same_bits_of_fewer_images(text, "few_filters");
    GpuCase one(parse_stage(text), Values::normal, gpu0);
    std::vector<unsigned char> expected;
    for (const int threads : cuda::few_filters_tiles(one.stage)) {
      const std::string tile = std::to_string(threads) + " threads";
      one.poison();
      Plan(one.stage, one.w, options_for(gpu0, "few_filters", tile)).run(one.operands()).or_throw();
      if (expected.empty()) expected = one.outputs();
      EXPECT_EQ(one.outputs(), expected) << tile;
    }
  }
}

// x and y as slices of wider tensors; an x off its 16 bytes is refused where C is a multiple of 4.
TEST_F(GpuFewFilters, ReadsAndWritesSlices) {
  for (const char* text :
       {"n2h9w7c64k3r3pad1+bias+relu", "n2h9w7c64k5r1+bias", "n2h9w7c33k3r3pad1+bias+relu"}) {
    SCOPED_TRACE(text);
    const Stage stage = parse_stage(text);
    GpuCase one(stage, Values::normal, gpu0);
    const Plan plan(stage, one.w, options_for(gpu0, "few_filters"));
    plan.run(one.operands()).or_throw();
    const Index odd = stage.c % 4 == 0 ? 0 : 1;
    Tensor wide_x(DType::f32, {2, 9, 7, 120 + odd}, gpu0), wide_y(DType::f32, {2, 9, 7, 11}, gpu0);
    Operands operands = one.operands();
    operands.x = wide_x.view().channels(8 + odd, stage.c);
    operands.y = wide_y.view().channels(5, stage.k);
    copy_tensor(one.x, wide_x.view().channels(8 + odd, stage.c));
    plan.run(operands).or_throw();
    Tensor slice(DType::f32, {2, 9, 7, stage.k});
    copy_tensor(operands.y, slice);
    const Tensor dense = one.y.to({});
    EXPECT_EQ(std::memcmp(slice.view().data, dense.view().data, dense.bytes()), 0);
    if (odd != 0) continue;
    operands.x = wide_x.view().channels(9, stage.c);
    EXPECT_NE(plan.run(operands).message().find("a multiple of 16"), std::string::npos);
  }
}

// Of a NaN in x, the outputs whose window holds it, and no other.
TEST_F(GpuFewFilters, NaNReachesTheWindowsThatHoldIt) {
  for (const char* text : {"n1h9w21c64k3r3pad1+bias", "n1h9w21c37k8r3pad1+bias"}) {
    GpuCase one(parse_stage(text), Values::integers, gpu0);
    const Index c = one.stage.c;
    Tensor x = one.x.to({});
    x.data<float>()[(4 * 21 + 7) * c + c - 1] = NAN;
    copy_tensor(x, one.x);
    Plan(one.stage, one.w, options_for(gpu0, "few_filters")).run(one.operands()).or_throw();
    const Tensor y = one.y.to({});
    for (Index p = 0; p < 9; ++p)
      for (Index q = 0; q < 21; ++q)
        for (Index k = 0; k < one.stage.k; ++k)
          EXPECT_EQ(std::isnan(y.data<float>()[(p * 21 + q) * one.stage.k + k]),
                    std::abs(p - 4) <= 1 && std::abs(q - 7) <= 1)
              << text << ' ' << p << ' ' << q << ' ' << k;
  }
}

TEST_F(GpuFewFilters, PoolsInASecondPass) {
  for (const char* text : {"n2h12w9c64k3r3pad1+bias+relu+max2", "n2h12w9c37k8r3pad1+max3s2p1",
                           "n2h7c40k5r1+bias+relu+max2ceil+keep(pre,act,idx)"})
    expect_bits_of_general(text, "few_filters_pool");
}

}  // namespace
}  // namespace convoy
