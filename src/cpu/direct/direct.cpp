// The kernel `direct`: any filter size, stride, dilation and groups, as an implicit GEMM.
//
// Input rows are packed once with their padding, so that every pixel sees its taps at the same
// offsets; tiles of pixels × filters then stay in registers for all taps and channels.
#include <fmt/format.h>

#include "cpu/direct/direct_prepared.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/refusals.hpp"

namespace convoy::cpu {
namespace {

constexpr Serves served_by_direct{
    .types = Types({DType::f32, DType::u8}, DType::f32),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = true,
    .bias = true,
    .norm = true,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = any_pool,
    .pools_first = false,
    .keep = nothing,
};

class Direct final : public StageKernel {
 public:
  Direct()
      : StageKernel({.name = "direct",
                     .arithmetic = "sequential",
                     .device = DeviceKind::cpu,
                     .serves = served_by_direct,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    Refusals(stage, why).packing(math::rows_of_window(stage));
  }

  // a: vectors of filters.
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    const TileSizes sizes = tile_sizes(machine);
    std::vector<Tile> tiles;
    for (const int vectors : sizes.widths(stage.k / stage.groups, {2, 4, 3, 1}))
      tiles.push_back(
          {fmt::format("{}x{}", sizes.pixels(vectors), vectors * sizes.lanes), vectors});
    return tiles;
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    return direct_cost(stage, tile.a, machine);
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<DirectPrepared>(stage, machine, tile.a);
  }
};

}  // namespace

const Kernel& direct() {
  static const Direct kernel;
  return kernel;
}

}  // namespace convoy::cpu
