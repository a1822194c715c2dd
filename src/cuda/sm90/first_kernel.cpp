// Kernel `first` as the planner sees it.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/sm90/costs.hpp"
#include "cuda/sm90/first.hpp"
#include "cuda/sm90/prepared.hpp"

namespace convoy::cuda::sm90 {
namespace {

class PreparedFirst final : public PreparedLaunch<FirstLaunch> {
 public:
  PreparedFirst(const Stage& stage, const Machine& machine)
      : PreparedFirst(stage, machine, first_layout(stage, facts_of(machine))) {}

  std::string packing() const override {
    return fmt::format("{} k{}c{}r{}s{} from tap {}", to_text(compute_type(stage_)), stage_.k,
                       stage_.c, stage_.r, stage_.s, layout_.lead);
  }
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    return first_weights(stage_, layout_, w);
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    const Status status =
        check_16_bytes("first", "y", args.y, args.y_stride.w, compute_type(stage_));
    if (!status.ok()) return status;
    return enqueue({.n = args.n,
                    .x = args.x,
                    .x_stride = args.x_stride,
                    .bias = args.bias,
                    .norm_scale = args.norm_scale,
                    .norm_shift = args.norm_shift,
                    .y = args.y,
                    .y_pixel_stride = args.y_stride.w},
                   args);
  }

 private:
  PreparedFirst(const Stage& stage, const Machine& machine, const FirstLayout& layout)
      : PreparedLaunch(stage, machine, layout), layout_(layout) {}

  FirstLayout layout_;
};

class First final : public StageKernel {
 public:
  // Rows of filters are padded with zero taps, and 0 * NaN is NaN.
  First()
      : StageKernel({.name = "first",
                     .arithmetic = "filter rows, four taps of four channels",
                     .device = DeviceKind::cuda,
                     .serves = served_by_first,
                     .exact = true,
                     .contains_non_finite = false,
                     .compute_capability = 90}) {}

  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override {
    refuse_first(stage, facts_of(machine), why);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    const FirstLayout layout = first_layout(stage, facts_of(machine));
    return {{std::to_string(layout.out_w) + "x" + std::to_string(layout.out_h)}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const DeviceFacts device = facts_of(machine);
    const FirstLayout layout = first_layout(stage, device);
    const FirstCosts costs;
    const double runs = static_cast<double>(stage.n) * layout.runs_x * layout.runs_y;
    const double tiles = runs * layout.run;
    const double turns = layout.run * std::ceil(runs / layout.grid);
    // The slower side of the ring sets the pace: bricks are rearranged unit by unit, twice as
    // slowly without TMA's raw rows; or each block of 64 channels is multiplied step by step,
    // pooled and stored.
    const double produced =
        (layout.raw ? costs.raw_unit : costs.unit) * layout.brick_rows * layout.units;
    const double steps = static_cast<double>(stage.r) * (layout.row_taps / 4);
    const double consumed =
        layout.k_blocks *
        (costs.step * steps + (stage.pool ? costs.pooled_block : costs.plain_block));
    const double seconds =
        costs.launch +
        std::max(turns * std::max(produced, consumed) / (costs.clock * device.clock),
                 cost_of(stage, 0, 0).bytes / (costs.memory * device.memory_bandwidth));
    const double done = tiles * layout.conv_rows * 16 * layout.k_blocks * 64 *
                        static_cast<double>(stage.r) * layout.row_taps * 4;
    return cost_of(stage, seconds,
                   std::max(0.0, 1 - static_cast<double>(shapes_of(stage).macs) / done));
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile&,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedFirst>(stage, machine);
  }
};

}  // namespace

const Kernel& first() {
  static const First kernel;
  return kernel;
}

}  // namespace convoy::cuda::sm90
