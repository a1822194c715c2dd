// Zeros of both signs, NaN and infinities on a GPU: PyTorch's values, and the same bits from
// whatever kernel of an arithmetic, tile or batch.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "gpu_case.hpp"
#include "math/half.hpp"
#include "reference/reference.hpp"
#include "verify/parity.hpp"

namespace convoy {
namespace {

using verify::Random;

constexpr float infinity = std::numeric_limits<float>::infinity();
// As GPUs' arithmetic makes it.
const auto not_a_number = std::bit_cast<float>(0x7fffffffU);

class GpuSpecialValues : public GpuTest {};

/// Operands on the host; `some` gives the images of a run.
struct Data {
  Stage stage;
  Tensor x, w, bias;
  explicit Data(const char* text)
      : stage(parse_stage(text)),
        x(stage.dtype, x_shape(stage)),
        w(DType::f32, w_shape(stage)),
        bias(DType::f32, {stage.k}) {
    stage.out = stage.output_dtype(true);
  }
  template <class Draw>
  static void fill(Tensor& tensor, Draw&& draw) {
    for (Index i = 0; i < tensor.elements(); ++i)
      math::store(tensor.view().dtype, tensor.view().data, i, draw(i));
  }
  std::vector<unsigned char> run(const Kernel& kernel, const Tile& tile, Index n) const {
    const Plan plan(stage, w, options_for(gpu0, kernel.name(), tile.name));
    Stage some = stage;
    some.n = n;
    Tensor there = x.to(gpu0), y(*stage.out, y_shape(some), gpu0), bias_there = bias.to(gpu0);
    Operands operands;
    operands.x = images(there.view(), 0, n);
    if (stage.bias) operands.bias = bias_there;
    operands.y = y;
    plan.run(operands).or_throw();
    const Tensor host = y.to({});
    return {host.data<unsigned char>(), host.data<unsigned char>() + host.bytes()};
  }
  reference::Outputs expected() const {
    Operands operands;
    operands.x = x;
    if (stage.bias) operands.bias = bias;
    Threads one(1);
    return reference::Oracle(stage, w, operands, reference::Sum::exact).all(one);
  }
};

/// Runs every kernel with some of its tiles; those of one arithmetic must give equal bits, and all
/// the oracle's values.
void expect_all(const Data& data) {
  const std::string text = to_text(data.stage);
  const std::vector<double> want = data.expected().y;
  const Machine machine = gpu::machine(0);
  std::map<std::string, std::vector<unsigned char>> bits;
  for (const Kernel* kernel : verify::fitting_kernels(data.stage, machine)) {
    const std::vector<Tile> tiles = kernel->tiles(data.stage, machine);
    for (std::size_t i = 0; i < tiles.size(); i += 1 + tiles.size() / 12) {
      SCOPED_TRACE(text + ", " + std::string(kernel->name()) + " " + tiles[i].name);
      const std::vector<unsigned char> y = data.run(*kernel, tiles[i], data.stage.n);
      const auto [known, is_new] = bits.try_emplace(std::string(kernel->arithmetic()), y);
      EXPECT_TRUE(known->second == y) << "other bits than the first of " << kernel->arithmetic();
      const std::vector<unsigned char> first = data.run(*kernel, tiles[i], 1);
      EXPECT_TRUE(std::equal(first.begin(), first.end(), y.begin())) << "one image";
      std::size_t wrong = 0;
      for (std::size_t at = 0; at < want.size(); ++at) {
        const double got = math::load(*data.stage.out, y.data(), static_cast<Index>(at));
        if (std::isnan(got) && !kernel->facts().contains_non_finite) continue;
        // What is not exact on integers is near.
        const bool near = !kernel->exact() && std::abs(got - want[at]) < 1e-4;
        if (!(got == want[at] || near || (std::isnan(got) && std::isnan(want[at]))) && wrong++ == 0)
          ADD_FAILURE() << at << ": " << got << ", expected " << want[at];
      }
    }
  }
}

constexpr const char* stages[] = {
    "f16:n3h13w9c24k24r3pad1groups24+bias+leaky(0)+max2",
    "f16:n3h13w9c64k64r3pad1groups16+bias+relu",
    "bf16:n3h13w9c32k32r3pad1groups4+leaky(0.5)+max2",
    "bf16:n3h13w9c24k24r3pad1groups24+leaky(0.5)+max2",
    "n3h12c6k6r3pad1groups6+bias+leaky(0)+max2ceil",
    "n3h12c6k6r5pad2stride2groups6+clip(-1,-0)",
    "bf16:n3h13w9c21k21r3pad1groups21+bias+leaky(0)+max2",
    "f16:n3h12c16k24r3pad1+bias+max2",
    "f16:n3h12c16k24r3pad1+bias+leaky(0)+max2",
    "bf16:n3h13w9c40k72r3pad1+bias+leaky(0.5)+max3s2p1",
    "f16:n3h12c16k24r3pad1+bias+relu+max2s1p1d3",
    "f16:n3h12c64k3r3pad1+bias+leaky(0)+max2",
    "f16:n3h12c64k3r3pad1+bias+leaky(0.5)+max2",
    "bf16:n3h12c64k8r1+bias+clip(-1,0)",
    "f16:n3h16c3k16r3pad1+bias+leaky(0)+max2",
    "f16:n3h16c3k16r3pad1+bias+clip(-1,1)+max2",
    "f16:n3h15c20k12r3pad1+bias+relu6+max2",
    "n3h9c5k7r3pad1+bias+leaky(0)+max2s1p1d3x1",
    "n3h12c64k3r3pad1+bias+leaky(0)+max2",
    "n3h12w9c37k8r1+bias+clip(-1,0)",
};

// Sums of exactly zero beside negative ones, of which leaky(0) makes -0, and biases of -0.
TEST_F(GpuSpecialValues, SignsOfZeroDoNotDependOnTheWay) {
  for (const char* text : stages) {
    Data data(text);
    Random random(7);
    Data::fill(data.x, [&](Index) { return static_cast<float>(random.between(-1, 1)); });
    Data::fill(data.w, [&](Index) {
      return random.chance(0.6) ? 0.0F : static_cast<float>(random.between(-1, 1));
    });
    Data::fill(data.bias, [&](Index) { return random.pick({-0.0F, 0.0F, -1.0F}); });
    expect_all(data);
  }
}

// Products that are too small for fp32, of either sign, at the image's borders and inside.
TEST_F(GpuSpecialValues, SumsThatVanishAreZeroOfOneSign) {
  for (const char* text : {"n3h9c6k6r3pad1groups6", "n3h9c6k6r3pad1groups6+bias+max2",
                           "bf16:n3h9c8k8r3pad1groups8+leaky(0.5)+max2"}) {
    Data data(text);
    Random random(8);
    Data::fill(data.x, [&](Index) { return random.pick({1e-30F, -1e-30F, 0.0F, -0.0F}); });
    Data::fill(data.w, [&](Index) { return random.pick({1e-30F, -1e-30F}); });
    Data::fill(data.bias, [](Index) { return -0.0F; });
    expect_all(data);
  }
}

TEST_F(GpuSpecialValues, NaNAndInfinitiesGoWherePyTorchPutsThem) {
  for (const char* text : stages) {
    for (const float special : {not_a_number, -not_a_number, infinity, -infinity}) {
      Data data(text);
      Random random(9);
      Data::fill(data.x, [&](Index) {
        return random.chance(0.02) ? special : static_cast<float>(random.between(-2, 2));
      });
      Data::fill(data.w, [&](Index) { return random.pick({-1.0F, 1.0F}); });
      Data::fill(data.bias, [&](Index) { return random.chance(0.1) ? -not_a_number : 1.0F; });
      expect_all(data);
    }
  }
}

// leaky(0) makes NaN of -inf, whatever else a window holds.
TEST_F(GpuSpecialValues, LeakyZeroOfMinusInfinityIsNaNInEveryWindow) {
  for (const char* text :
       {"f16:n1h8c3k16r3pad1+leaky(0)+max2", "f16:n1h8c64k16r3pad1+leaky(0)+max2",
        "f16:n1h8c16k2r3pad1+leaky(0)+max2", "f16:n1h8c8k8r3pad1groups8+leaky(0)+max2",
        "n1h8c3k5r3pad1+leaky(0)+max2"}) {
    Data data(text);
    Data::fill(data.w, [](Index) { return 1.0F; });
    Data::fill(data.x,
               [&](Index i) { return i == (data.stage.w + 1) * data.stage.c ? -infinity : 1.0F; });
    const Machine machine = gpu::machine(0);
    for (const Kernel* kernel : verify::fitting_kernels(data.stage, machine)) {
      const auto y = data.run(*kernel, kernel->tiles(data.stage, machine).front(), 1);
      EXPECT_TRUE(std::isnan(math::load(*data.stage.out, y.data(), 0)))
          << text << ' ' << kernel->name();
    }
  }
}

// Every sum begins with an infinity; what follows overflows to the other side.
TEST_F(GpuSpecialValues, AnInfinityOutlivesPartialSumsThatOverflow) {
  for (const char* text : {"bf16:n1h6c64k3r3pad1", "bf16:n1h6c64k16r1+max2", "bf16:n1h6c128k8r3",
                           "bf16:n1h9c600k2r1"}) {
    for (const float sign : {1.0F, -1.0F}) {
      Data data(text);
      Data::fill(data.w, [](Index) { return 1.0F; });
      Data::fill(data.x,
                 [&](Index i) { return i % data.stage.c == 0 ? sign * infinity : -sign * 3e38F; });
      expect_all(data);
    }
  }
}

// What rounds to -0 is +0 after relu, also where conv + bias has been rounded before.
TEST_F(GpuSpecialValues, SecondOutputsChangeNoSignOfZero) {
  for (const char* act : {"+relu", "+clip(0,1)", "+relu6", ""}) {
    const std::string text = std::string("f16:n2h8c16k24r1") + act + "+max2";
    const std::string kept = text + "+keep(pre,act,idx)";
    Data plain(text.c_str()), with(kept.c_str());
    for (Data* data : {&plain, &with}) {
      Random random(10);
      Data::fill(data->x, [&](Index) { return random.pick({0.0F, 0x1p-13F, -0x1p-13F}); });
      Data::fill(data->w, [&](Index) { return random.chance(0.9) ? 0.0F : 0x1p-14F; });
    }
    const Tensor x = plain.x.to(gpu0);
    const auto run = [&](const Data& data, const char* kernel) {
      const Plan plan(data.stage, data.w, options_for(gpu0, kernel));
      Tensor y(DType::f16, y_shape(data.stage), gpu0), pre(DType::f16, pre_shape(data.stage), gpu0),
          activated(DType::f16, pre_shape(data.stage), gpu0),
          idx(DType::i32, y_shape(data.stage), gpu0);
      Operands operands;
      operands.x = x;
      operands.y = y;
      if (data.stage.keep.any()) operands.pre = pre, operands.act = activated, operands.idx = idx;
      plan.run(operands).or_throw();
      const Tensor host = y.to({});
      return std::vector<unsigned char>(host.data<unsigned char>(),
                                        host.data<unsigned char>() + host.bytes());
    };
    EXPECT_TRUE(run(plain, "halo") == run(with, "halo_pool")) << kept;
  }
}

}  // namespace
}  // namespace convoy
