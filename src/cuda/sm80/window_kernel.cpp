// Kernel `window` as the planner sees it.
#include <fmt/core.h>

#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/prepared_stage.hpp"
#include "cuda/sm80/window.hpp"

namespace convoy::cuda::sm80 {
namespace {

// A WindowTile in the planner's Tile: its rows and filters, what else tells it from others of the
// stage, and its number, which says where to look first.
Tile tile_of(const WindowTile& tile, std::size_t number) {
  const int kind = tile.warp_m | tile.slots << 8 | static_cast<int>(tile.visit) << 12 |
                   tile.narrow << 14 | tile.box << 15 | tile.pairs << 16 | tile.sparse << 17;
  return {tile.name(), static_cast<int>(number), tile.m, tile.n, kind};
}
WindowTile window_tile(const Stage& stage, const Tile& tile, const Machine& machine) {
  const std::vector<WindowTile> all = window_tiles(stage, machine);
  const auto is_it = [&](std::size_t i) {
    const Tile one = tile_of(all[i], i);
    return one.b == tile.b && one.c == tile.c && one.d == tile.d;
  };
  const auto numbered = static_cast<std::size_t>(tile.a);
  if (numbered < all.size() && is_it(numbered)) return all[numbered];
  for (std::size_t i = 0; i < all.size(); ++i)
    if (is_it(i)) return all[i];
  throw no_such_tile("window", tile, stage);
}

class PreparedWindow final : public PreparedStage<WindowLaunch> {
 public:
  PreparedWindow(const Stage& stage, const WindowTile& tile, const Machine& machine)
      : PreparedStage(stage, machine, tile, machine),
        in_order_(window_sizes(stage, tile).in_order) {}

  std::string packing() const override {
    return fmt::format("{} k{}r{}s{}c{}g{}{}", to_text(stage_.dtype), stage_.k, stage_.r, stage_.s,
                       stage_.c, stage_.groups, in_order_ ? " in order" : "");
  }
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    return window_weights(stage_, in_order_, w);
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    return enqueue(args);
  }

 private:
  const bool in_order_;
};

class Window final : public StageKernel {
 public:
  Window()
      : StageKernel({.name = "window",
                     .arithmetic = "64 bytes of channels, tap, 32 bytes",
                     .device = DeviceKind::cuda,
                     .serves = served_by_window,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override {
    refuse_window(stage, machine, why);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    std::vector<Tile> tiles;
    for (const WindowTile& tile : window_tiles(stage, machine))
      tiles.push_back(tile_of(tile, tiles.size()));
    return by_seconds(std::move(tiles), [&](const Tile& tile) {
      return window_seconds(stage, window_tile(stage, tile, machine), machine);
    });
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    const WindowTile ours = window_tile(stage, tile, machine);
    return cost_of(stage, window_seconds(stage, ours, machine), window_waste(stage, ours));
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedWindow>(stage, window_tile(stage, tile, machine), machine);
  }
};

}  // namespace

const Kernel& window() {
  static const Window kernel;
  return kernel;
}

}  // namespace convoy::cuda::sm80
