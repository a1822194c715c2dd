// The kernel `direct`: any filter size, stride, dilation and groups, as an implicit GEMM.
//
// Input rows are packed once with their padding, so that every pixel sees its taps at the same
// offsets; tiles of pixels × filters then stay in registers for all taps and channels.
#include <fmt/format.h>

#include "cpu/bands.hpp"
#include "cpu/families.hpp"

namespace convoy::cpu {
namespace {

class Direct final : public Kernel {
 public:
  std::string_view name() const override { return "direct"; }
  std::string_view arithmetic() const override { return "sequential"; }
  bool exact() const override { return true; }
  DeviceKind device() const override { return DeviceKind::cpu; }

  std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const override {
    return refusals_of_bands(stage, machine);
  }

  // a: vectors of filters.
  std::vector<Tile> tiles(const Stage& stage, const Machine&) const override {
    const TileLoops& loops = tile_loops();
    std::vector<Tile> tiles;
    for (int vectors : {2, 4, 3, 1}) {
      const auto at = static_cast<std::size_t>(vectors);
      if (loops.max_pixels[at] == 0) continue;
      // A tile wider than the filters of a group is that of the next smaller width.
      if (vectors > loops.vectors_of(stage.k / stage.groups)) continue;
      tiles.push_back({fmt::format("{}x{}", loops.max_pixels[at], vectors * loops.lanes), vectors});
    }
    return tiles;
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    return cost_of_bands(stage, tile.a, machine);
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<Bands>(stage, machine, tile.a);
  }
};

}  // namespace

const Kernel& direct() {
  static const Direct kernel;
  return kernel;
}

}  // namespace convoy::cpu
