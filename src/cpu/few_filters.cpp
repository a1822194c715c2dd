// The kernel `few_filters`: few filters over many channels, as the last layer of a decoder has
// them. A vector of filters would be mostly empty, so vectors hold channels, and a tile is a
// pooling window (or a few pixels) times all filters.
#include <fmt/format.h>

#include <algorithm>

#include "cpu/bands.hpp"
#include "cpu/families.hpp"

namespace convoy::cpu {
namespace {

class FewFilters final : public Kernel {
 public:
  std::string_view name() const override { return "few_filters"; }
  std::string_view arithmetic() const override { return "sixteen sums over c"; }
  bool exact() const override { return true; }
  DeviceKind device() const override { return DeviceKind::cpu; }

  std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const override {
    std::vector<std::string> reasons = refusals_of_bands(stage, machine);
    if (stage.groups != 1) reasons.push_back(fmt::format("{} groups: it takes one", stage.groups));
    if (stage.k > 8) reasons.push_back(fmt::format("K = {}: it takes up to 8 filters", stage.k));
    if (stage.c < 16)
      reasons.push_back(fmt::format("C = {}: its vectors hold 16 channels", stage.c));
    return reasons;
  }

  // a: filters of a tile at most.
  std::vector<Tile> tiles(const Stage& stage, const Machine&) const override {
    const int filters = filters_of(stage);
    return {{fmt::format("{}x{}", channel_loops().max_pixels[static_cast<std::size_t>(filters)],
                         filters),
             filters}};
  }

  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    const Shapes shapes = shapes_of(stage);
    const double pixels = static_cast<double>(shapes.gemm_m);
    const double depth = static_cast<double>(tile_depth(stage, channel_loops()));
    const double peak = machine.peak_flops / machine.threads;
    Cost cost;
    cost.flops = 2 * pixels * depth * static_cast<double>(stage.k);
    cost.waste = 1 - 2 * static_cast<double>(shapes.macs) / cost.flops;
    cost.bytes =
        static_cast<double>(shapes.x_elements) * static_cast<double>(size_of(stage.dtype)) +
        4.0 * static_cast<double>(shapes.w_elements + shapes.y_elements);
    // Fewer filters than three share each load among too few multiply-adds. Beside them: twenty
    // operations to add sixteen sums up, and packing.
    const double share = tile.a >= 3 ? 0.95 : tile.a == 2 ? 0.85 : 0.6;
    constexpr double cycle = 1 / 3.0e9;
    const double seconds = cost.flops / (peak * share) +
                           pixels * static_cast<double>(stage.k) * 20 * cycle +
                           static_cast<double>(shapes.x_elements) * cycle / 4;
    cost.seconds = std::max(seconds / machine.threads, cost.bytes / machine.memory_bandwidth) +
                   (machine.threads > 1 ? 3e-6 : 5e-7);
    return cost;
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<Bands>(stage, machine, channel_loops(), tile.a);
  }

 private:
  // Blocks of equal size: 4 filters are 2 + 2 where a tile holds three.
  static int filters_of(const Stage& stage) {
    const TileLoops& loops = channel_loops();
    int most = max_tile_vectors;
    while (loops.max_pixels[static_cast<std::size_t>(most)] == 0) --most;
    const int k = static_cast<int>(stage.k);
    const int blocks = (k + most - 1) / most;
    return (k + blocks - 1) / blocks;
  }
};

}  // namespace

const Kernel& few_filters() {
  static const FewFilters kernel;
  return kernel;
}

}  // namespace convoy::cpu
