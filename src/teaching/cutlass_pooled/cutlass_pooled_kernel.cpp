// Kernel `cutlass_pooled`, as the planner sees it.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/error.hpp"
#include "cuda/family.hpp"
#include "math/divide.hpp"
#include "teaching/cutlass_pooled/cutlass_pooled.hpp"
#include "teaching/families.hpp"

namespace convoy::cuda::teaching {
namespace {

/// The constants of the cost model, by hand, 2026-11, to the target stages on an H200. It only
/// ranks the tiles: the kernel runs by name only.
struct CutlassPooledCosts {
  double launches = 6e-6;  // seconds: memset, convolution, conversion
  // Of the tensor cores' speed on f16, by the filters of a tile: narrow ones load more for each.
  double narrow_share = 0.31, wide_share = 0.34;
  double memory_share = 0.8;  // of the memory's speed
  double passes = 6;          // over the fp32 buffer: memset, four reductions, conversion
};

std::unique_ptr<CutlassPooledLaunch> make_launch([[maybe_unused]] const Stage& stage,
                                                 [[maybe_unused]] const Tile& tile) {
#if !defined(CONVOY_NO_CUTLASS)
  if (tile.b == 64) return cutlass_pooled_128x64(stage);
  if (tile.b == 128) return cutlass_pooled_128x128(stage);
#endif
  throw Error("cutlass_pooled: no tile of " + std::to_string(tile.b) + " filters is compiled");
}

class PreparedCutlassPooled final : public Prepared {
 public:
  PreparedCutlassPooled(const Stage& stage, const Tile& tile, const Machine& machine)
      : stage_(stage), device_(machine.device.index) {
    const OnDevice on(device_);
    launch_ = make_launch(stage, tile);
  }

  std::string packing() const override {
    return fmt::format("k{}r{}s{}c{}", stage_.k, stage_.r, stage_.s, stage_.c);
  }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    return pack_rounded(stage_, laid_out(0, all.front().w), device_);
  }
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    return {w, w + shapes_of(stage_).w_elements};
  }
  void use(std::shared_ptr<const PackedWeights> weights) override {
    weights_ = std::static_pointer_cast<const DeviceWeights>(std::move(weights));
  }
  std::size_t workspace_bytes() const override { return cutlass_pooled_bytes(stage_); }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    const Index x_pixel = args.x_stride.w, y_pixel = args.y_stride.w;
    Status status = check_16_bytes("cutlass_pooled", "x", args.x, x_pixel, DType::f16);
    if (status.ok()) status = check_16_bytes("cutlass_pooled", "y", args.y, y_pixel, DType::f16);
    if (status.ok() && !cutlass_pooled_fits(stage_, x_pixel))
      status = Status(
          StatusCode::invalid_operand,
          fmt::format(
              "x: its pixels are {} elements apart, so it spans more than 2^30 elements, expected "
              "fewer for kernel cutlass_pooled. Copy the slice, or plan with the kernel "
              "general.",
              x_pixel));
    if (!status.ok()) return status;
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    return launch_status(launch_->run({.n = args.n,
                                       .x = args.x,
                                       .x_pixel = x_pixel,
                                       .w = weights_->memory.data(),
                                       .bias = args.bias,
                                       .pooled = reinterpret_cast<float*>(args.workspace),
                                       .y = args.y,
                                       .y_pixel = y_pixel},
                                      stream_of(args)));
  }

 private:
  Stage stage_;
  int device_;
  std::unique_ptr<CutlassPooledLaunch> launch_;
  std::shared_ptr<const DeviceWeights> weights_;
};

class CutlassPooled final : public StageKernel {
 public:
  CutlassPooled()
      : StageKernel({.name = "cutlass_pooled",
                     .arithmetic = "32 channels, tap, 16 channels",
                     .device = DeviceKind::cuda,
                     .serves = served_by_cutlass_pooled,
                     .exact = true,
                     .by_name_only = true}) {}

  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override {
    refuse_cutlass_pooled(stage, facts_of(machine), why);
  }

  std::vector<Tile> tiles(const Stage&, const Machine& machine) const override {
    std::vector<Tile> tiles;
    for (const CutlassPooledTile& tile : cutlass_pooled_tiles)
      if (static_cast<std::size_t>(cutlass_pooled_shared_bytes(tile)) <=
          machine.shared_memory_bytes)
        tiles.push_back({tile.name(), tile.rows, tile.filters});
    return tiles;
  }

  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    const CutlassPooledCosts costs;
    const Shapes shapes = shapes_of(stage);
    const Index rows = stage.n * shapes.p * shapes.q;
    const Index ctas = math::ceil_div(rows, tile.a) * math::ceil_div(stage.k, tile.b);
    // Multiprocessors take CTAs in turns; all of a turn are as long as one.
    const Index turns = math::ceil_div(ctas, std::max(1, machine.multiprocessors));
    const double depth = static_cast<double>(
        stage.r * stage.s * math::ceil_div(stage.c, cutlass_pooled_depth) * cutlass_pooled_depth);
    const double a_cta = 2.0 * tile.a * tile.b * depth;
    const double share = tile.b < 128 ? costs.narrow_share : costs.wide_share;
    const double math = static_cast<double>(turns * machine.multiprocessors) * a_cta /
                        (share * machine.tensor_flops);
    const double moved = cost_of(stage, 0, 0).bytes +
                         costs.passes * static_cast<double>(cutlass_pooled_bytes(stage));
    const double seconds =
        costs.launches + math + moved / (costs.memory_share * machine.memory_bandwidth);
    const double done = static_cast<double>(ctas) * a_cta;
    return cost_of(stage, seconds, 1 - 2.0 * static_cast<double>(shapes.macs) / done);
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedCutlassPooled>(stage, tile, machine);
  }
};

}  // namespace

const Kernel& cutlass_pooled() {
  static const CutlassPooled kernel;
  return kernel;
}

}  // namespace convoy::cuda::teaching
