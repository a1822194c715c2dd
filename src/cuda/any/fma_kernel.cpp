// Kernel `fma` as the planner sees it.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/any/fma.hpp"
#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/prepared_stage.hpp"

namespace convoy::cuda {
namespace {

FmaTile fma_tile(const Stage& stage, const Tile& tile) {
  const std::vector<FmaTile> all = fma_tiles(stage);
  const auto is_this = [&](const FmaTile& one) { return one.m == tile.a && one.n == tile.b; };
  const auto found = std::ranges::find_if(all, is_this);
  if (found == all.end()) throw no_such_tile("fma", tile, stage);
  return *found;
}

class PreparedFma final : public PreparedStage<FmaLaunch> {
 public:
  PreparedFma(const Stage& stage, const FmaTile& tile, const Machine& machine)
      : PreparedStage(stage, machine, tile, machine.compute_capability >= 90) {}

  std::string packing() const override {
    return fmt::format("{} k{}r{}s{}c{}g{}", to_text(compute_type(stage_)), stage_.k, stage_.r,
                       stage_.s, stage_.c, stage_.groups);
  }
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    return fma_weights(stage_, w);
  }
  DType held() const override { return DType::f32; }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    return enqueue(args);
  }
};

class Fma final : public StageKernel {
 public:
  Fma()
      : StageKernel({.name = "fma",
                     .arithmetic = "sequential",
                     .device = DeviceKind::cuda,
                     .serves = served_by_fma,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    refuse_fma(stage, why);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    std::vector<Tile> tiles;
    for (const FmaTile& tile : fma_tiles(stage))
      tiles.push_back({fma_tile_name(tile), tile.m, tile.n});
    return by_seconds(std::move(tiles), [&](const Tile& tile) {
      return fma_seconds(stage, fma_tile(stage, tile), machine);
    });
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    const FmaTile ours = fma_tile(stage, tile);
    return cost_of(stage, fma_seconds(stage, ours, machine), fma_waste(stage, ours));
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedFma>(stage, fma_tile(stage, tile), machine);
  }
};

}  // namespace

const Kernel& fma() {
  static const Fma kernel;
  return kernel;
}

}  // namespace convoy::cuda
