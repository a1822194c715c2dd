// Kernel `depthwise` on a GPU, as the planner sees it.
#include <fmt/core.h>

#include <cstdint>

#include "cuda/depthwise.hpp"
#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "math/half.hpp"

namespace convoy::cuda {
namespace {

Tile tile_of(const DepthwiseTile& tile) {
  return {fmt::format("{}x{}", tile.rows, tile.columns), tile.rows, tile.columns};
}
DepthwiseTile depthwise_tile(const Tile& tile) {
  return {tile.a, tile.b};
}

class PreparedDepthwise final : public Prepared {
 public:
  PreparedDepthwise(const Stage& stage, const DepthwiseTile& tile, const Machine& machine)
      : stage_(stage),
        tile_(tile),
        layout_(depthwise_layout(stage, tile)),
        device_(machine.device.index),
        overlap_(machine.compute_capability >= 90),
        weights_(device_,
                 static_cast<std::size_t>(shapes_of(stage).w_elements) * size_of(stage.dtype),
                 "the weights of " + to_text(stage)) {
    const OnDevice on(device_);
    Status(depthwise_ready(stage, tile)).or_throw();
  }

  // [K,R,S,1] -> [R,S,C]
  void set_weights(const float* w) override {
    const Index taps = stage_.r * stage_.s;
    std::vector<float> packed(static_cast<std::size_t>(shapes_of(stage_).w_elements));
    for (Index c = 0; c < stage_.c; ++c)
      for (Index tap = 0; tap < taps; ++tap)
        packed[static_cast<std::size_t>(tap * stage_.c + c)] = w[c * taps + tap];
    upload_weights(stage_, packed.data(), false, weights_);
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    Status status =
        check_alignment("depthwise", "x", args.x, args.x_stride.w, stage_.dtype, depthwise_bytes);
    if (status.ok())
      status =
          check_alignment("depthwise", "y", args.y, args.y_stride.w, stage_.dtype, depthwise_bytes);
    if (!status.ok()) return status;
    const OnDevice on(device_);
    return Status(depthwise_launch(
        stage_, tile_, layout_, {.args = args, .w = weights_.data(), .overlap_previous = overlap_},
        stream_of(args)));
  }

 private:
  Stage stage_;
  DepthwiseTile tile_;
  DepthwiseLayout layout_;
  int device_;
  bool overlap_;
  DeviceMemory weights_;
};

class Depthwise final : public Kernel {
 public:
  std::string_view name() const override { return "depthwise"; }
  std::string_view arithmetic() const override { return "sequential"; }
  bool exact() const override { return true; }
  DeviceKind device() const override { return DeviceKind::cuda; }

  std::vector<std::string> refusals(const Stage& stage, const Machine&) const override {
    return depthwise_refusals(stage);
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
