// Kernel `few_filters` on a GPU, as the planner sees it.
#include <fmt/core.h>

#include "cuda/any/few_filters.hpp"
#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/prepared_stage.hpp"

namespace convoy::cuda {
namespace {

class PreparedFewFilters final : public PreparedStage<FewFiltersLaunch> {
 public:
  PreparedFewFilters(const Stage& stage, int threads, const Machine& machine)
      : PreparedStage(stage, machine, threads, machine.compute_capability >= 90),
        vector_(few_filters_channels(stage.c).vector) {}

  std::string packing() const override {
    return fmt::format("k{}r{}s{}c{}", stage_.k, stage_.r, stage_.s, stage_.c);
  }
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    return few_filters_weights(stage_, w);
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    const Status aligned =
        check_alignment("few_filters", "x", args.x, args.x_stride.w, stage_.dtype, 4 * vector_);
    if (!aligned.ok()) return aligned;
    return enqueue(args);
  }

 private:
  const int vector_;
};

class FewFilters final : public StageKernel {
 public:
  FewFilters()
      : StageKernel({.name = "few_filters",
                     .arithmetic = "blocks of channels, taps, then lanes",
                     .device = DeviceKind::cuda,
                     .serves = served_by_few_filters,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    refuse_few_filters(stage, why);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine&) const override {
    std::vector<Tile> tiles;
    for (const int threads : few_filters_tiles(stage))
      tiles.push_back({few_filters_tile_name(threads), threads});
    return tiles;
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    const FewFiltersLayout layout = few_filters_layout(stage);
    const FewFiltersChannels& channels = layout.channels;
    const double done = static_cast<double>(layout.all_strips()) * few_filters_pixels *
                        static_cast<double>(stage.r * stage.s) * layout.filters * channels.blocks *
                        channels.of_block();
    const double waste = 1 - static_cast<double>(shapes_of(stage).macs) / done;
    return cost_of(stage, few_filters_seconds(stage, tile.a, machine), waste);
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedFewFilters>(stage, tile.a, machine);
  }
};

}  // namespace

const Kernel& few_filters() {
  static const FewFilters kernel;
  return kernel;
}

}  // namespace convoy::cuda
