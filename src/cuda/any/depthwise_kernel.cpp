// Kernel `depthwise` on a GPU, as the planner sees it.
#include <fmt/core.h>

#include <cstdint>

#include "cuda/any/depthwise.hpp"
#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/prepared_stage.hpp"

namespace convoy::cuda {
namespace {

Tile tile_of(const DepthwiseTile& tile) {
  return {depthwise_tile_name(tile), tile.rows, tile.columns};
}
DepthwiseTile depthwise_tile(const Tile& tile) {
  return {tile.a, tile.b};
}

class PreparedDepthwise final : public PreparedStage<DepthwiseLaunch> {
 public:
  PreparedDepthwise(const Stage& stage, const DepthwiseTile& tile, const Machine& machine)
      : PreparedStage(stage, machine, tile, machine.compute_capability >= 90),
        bytes_(depthwise_channels(stage) * static_cast<int>(size_of(stage.dtype))) {}

  std::string packing() const override {
    return fmt::format("{} r{}s{}c{}", to_text(stage_.dtype), stage_.r, stage_.s, stage_.c);
  }
  // [K,R,S,1] -> [R,S,C]
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    const Index taps = stage_.r * stage_.s;
    std::vector<float> packed(static_cast<std::size_t>(shapes_of(stage_).w_elements));
    for (Index c = 0; c < stage_.c; ++c)
      for (Index tap = 0; tap < taps; ++tap)
        packed[static_cast<std::size_t>(tap * stage_.c + c)] = w[c * taps + tap];
    return packed;
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    Status status =
        check_alignment("depthwise", "x", args.x, args.x_stride.w, stage_.dtype, bytes_);
    if (status.ok())
      status = check_alignment("depthwise", "y", args.y, args.y_stride.w, stage_.dtype, bytes_);
    if (!status.ok()) return status;
    return enqueue(args);
  }

 private:
  const int bytes_;  // of a thread's channels
};

class Depthwise final : public StageKernel {
 public:
  Depthwise()
      : StageKernel({.name = "depthwise",
                     .arithmetic = "sequential",
                     .device = DeviceKind::cuda,
                     .serves = served_by_depthwise,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    refuse_depthwise(stage, why);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine&) const override {
    std::vector<Tile> tiles;
    for (const DepthwiseTile& tile : depthwise_tiles(stage)) tiles.push_back(tile_of(tile));
    return tiles;
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    return cost_of(stage, depthwise_seconds(stage, depthwise_tile(tile), machine), 0);
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedDepthwise>(stage, depthwise_tile(tile), machine);
  }
};

}  // namespace

const Kernel& depthwise() {
  static const Depthwise kernel;
  return kernel;
}

}  // namespace convoy::cuda
