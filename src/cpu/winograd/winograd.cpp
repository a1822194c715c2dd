// The kernels `winograd4`, 3x3 stride 1 by F(4x4, 3x3), and `winograd2`, by F(2x2, 3x3) and with
// stride 2 by F(2, 2) of the even inputs: one class, of tiles of m x m.
#include "cpu/winograd/winograd.hpp"

#include <fmt/format.h>

#include "cpu/families.hpp"
#include "cpu/shared/pool_apart.hpp"
#include "cpu/shared/refusals.hpp"

namespace convoy::cpu::winograd {

void fill_multiply(Simd& simd);
void fill_transforms(Simd& simd, Index m, Index stride);
void fill_filter(Simd& simd);

Simd simd(Index m, Index stride) {
  Simd simd;
  fill_multiply(simd);
  fill_transforms(simd, m, stride);
  if (m == 4) fill_filter(simd);
  return simd;
}

Geometry geometry(const Stage& stage, Index m) {
  const Shapes shapes = shapes_of(stage);
  Geometry g;
  g.h = stage.h;
  g.w = stage.w;
  g.c = stage.c;
  g.k = stage.k;
  g.p = shapes.p;
  g.q = shapes.q;
  g.out_h = shapes.out_h;
  g.out_w = shapes.out_w;
  g.pad_top = stage.pad.top;
  g.pad_left = stage.pad.left;
  g.m = m;
  g.tiles_h = (g.p + m - 1) / m;
  g.tiles_w = (g.q + m - 1) / m;
  g.stride = stage.stride.h;
  g.n = g.stride == 2 ? 5 : m + 2;
  g.points = g.n * g.n;
  g.filters = g.stride == 2 ? 16 : g.points;
  g.run = m == 2 ? 64 : g.c < 128 ? 16 : 32;
  // U of 36 MiB and more. What it loses by being made in fp32 does not show beside long sums.
  if (m == 4 && g.c >= 256 && g.c * g.k >= 512 * 512) g.slice = 4 * g.run;
  g.epilogue = Epilogue(stage.act);
  g.post = PostOps(stage);
  g.pool = pools_in_fours_or_less(stage);
  return g;
}

Index group_tiles(const Geometry& g, const Machine& machine) {
  if (machine.isa == "neon") return 12;
  if (machine.isa != "avx512") return 6;
  // Seven leave room for the totals of short runs of channels. Long runs do without, and with
  // twelve tiles have fewer loads: as long as what is loaded stays in L1.
  constexpr Index tiles = 12;
  const Index panel = 2 * machine.vector_floats;
  const auto loaded = static_cast<std::size_t>(g.c * (tiles + panel)) * sizeof(float);
  return g.m == 2 && loaded <= machine.l1_bytes * 3 / 4 ? tiles : 7;
}

namespace {

void refuse_sizes(const Stage& stage, const Machine& machine, Index m, Reasons& why) {
  // Measured against plain fp32 on thousands of drawn stages: with fewer channels, or an image of
  // mostly padding, too few roundings average out and the error exceeds twice that of plain fp32.
  const bool small = stage.h < 8 || stage.w < 8;
  const Index least = m == 2 ? 4 : (small ? 96 : 64);
  Refusals refusals(stage, why);
  refusals.filter(3, 3);
  if (m == 2 && stage.stride != Extent(1) && stage.stride != Extent(2))
    refusals.refuse("the stride", fmt::format("{}x{}", stage.stride.h, stage.stride.w),
                    "1x1 or 2x2");
  if (stage.c < least)
    refusals.refuse(
        "C", stage.c,
        fmt::format("at least {}: with fewer the error of F({}x{}) is too large", least, m, m));
  refusals.plane_of_pool();
  // Without vectors a product is rounded before it is added, which F(4x4) has no margin for.
  refusals.image_of_at_least(4, "with less its error is too large")
      .expect(m == 2 || machine.isa != "scalar", "the instruction set", machine.isa,
              "one of vectors with fused multiply-add: without, the error of F(4x4) is too large");
}

/// F(4x4) has no stride, and F(2x2) strides of 1 and 2.
constexpr Serves served_by_winograd(Index m) {
  return {
      .types = Types(DType::f32, DType::f32),
      .layouts = Layout::nhwc,
      .strides = m == 2,
      .dilation = false,
      .groups = false,
      .bias = true,
      .norm = false,
      .acts = elementwise,
      .soft = false,
      .hold = false,
      .pools = any_pool,
      .pools_first = false,
      .keep = nothing,
  };
}

class Winograd final : public StageKernel {
 public:
  Winograd(Index m, const KernelFacts& facts) : StageKernel(facts), m_(m) {}

  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override {
    refuse_sizes(stage, machine, m_, why);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    return winograd::tiles(stage, machine, m_);
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    return cost_pooled(stage, machine,
                       [&](const Stage& some) { return winograd::cost(some, tile, machine, m_); });
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return prepare_pooled(stage, machine, [&](const Stage& some) {
      return winograd::prepare(some, tile, machine, m_);
    });
  }

 private:
  Index m_;
};

}  // namespace
}  // namespace convoy::cpu::winograd

namespace convoy::cpu {

const Kernel& winograd4() {
  static const winograd::Winograd kernel(4, {.name = "winograd4",
                                             .arithmetic = "winograd f4",
                                             .device = DeviceKind::cpu,
                                             .serves = winograd::served_by_winograd(4)});
  return kernel;
}
const Kernel& winograd2() {
  static const winograd::Winograd kernel(2, {.name = "winograd2",
                                             .arithmetic = "winograd f2",
                                             .device = DeviceKind::cpu,
                                             .serves = winograd::served_by_winograd(2),
                                             .exact = true});
  return kernel;
}

}  // namespace convoy::cpu
