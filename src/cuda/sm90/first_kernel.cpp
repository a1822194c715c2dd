// Kernel `first` as the planner sees it.
#include <algorithm>
#include <cmath>
#include <optional>

#include "cuda/error.hpp"
#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/sm90/first.hpp"

namespace convoy::cuda::sm90 {
namespace {

class PreparedFirst final : public Prepared {
 public:
  PreparedFirst(const Stage& stage, const Machine& machine)
      : stage_(stage),
        layout_(first_layout(stage, facts_of(machine))),
        device_(machine.device.index),
        weights_(device_, static_cast<std::size_t>(layout_.w_bytes),
                 "the weights of " + to_text(stage)) {
    const OnDevice on(device_);
    launch_.emplace(stage, layout_, weights_.data());
  }

  void set_weights(const float* w) override {
    const std::string what = "the weights of " + to_text(stage_) + " before they are packed";
    const DeviceMemory plain(device_, static_cast<std::size_t>(shapes_of(stage_).w_elements) * 2,
                             what);
    upload_weights(stage_, w, false, plain);
    const OnDevice on(device_);
    Status(first_pack(stage_, layout_, plain.data(), weights_.data(), nullptr)).or_throw();
    check(cudaStreamSynchronize(nullptr), "packing " + what);
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    const Status status =
        check_16_bytes("first", "y", args.y, args.y_stride.w, compute_type(stage_));
    if (!status.ok()) return status;
    const OnDevice on(device_);
    return Status(launch_->run({.n = args.n,
                                .x = args.x,
                                .x_stride = args.x_stride,
                                .bias = args.bias,
                                .norm_scale = args.norm_scale,
                                .norm_shift = args.norm_shift,
                                .y = args.y,
                                .y_pixel_stride = args.y_stride.w,
                                .overlap_previous = true},
                               stream_of(args)));
  }

 private:
  Stage stage_;
  FirstLayout layout_;
  int device_;
  DeviceMemory weights_;
  std::optional<FirstLaunch> launch_;
};

class First final : public Kernel {
 public:
  std::string_view name() const override { return "first"; }
  std::string_view arithmetic() const override { return "filter rows, four taps of four channels"; }
  bool exact() const override { return true; }
  // Rows of filters are padded with zero taps, and 0 * NaN is NaN.
  bool contains_non_finite() const override { return false; }
  DeviceKind device() const override { return DeviceKind::cuda; }

  std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const override {
    const DeviceFacts facts = facts_of(machine);
    std::vector<std::string> why = first_refusals(stage, facts);
    if (!why.empty()) return why;
    const auto layout = first_layout(stage, facts);
    if (!countable({layout.runs_x, layout.run, layout.runs_y, stage.n}))
      why.emplace_back(too_many_tiles);
    return why;
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    const FirstLayout layout = first_layout(stage, facts_of(machine));
    return {{std::to_string(layout.out_w) + "x" + std::to_string(layout.out_h)}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const FirstLayout layout = first_layout(stage, facts_of(machine));
    const double runs = static_cast<double>(stage.n) * layout.runs_x * layout.runs_y;
    const double tiles = runs * layout.run;
    const double turns = layout.run * std::ceil(runs / layout.grid);
    // A fit to the measured stages (bench/results/h200). The slower side of the ring sets the pace:
    // bricks are rearranged unit by unit, twice as slowly without TMA's raw rows; or each block of
    // 64 channels is multiplied step by step, pooled and stored.
    const double produced = (layout.raw ? 1.6e-9 : 3.3e-9) * layout.brick_rows * layout.units;
    const double steps = static_cast<double>(stage.r) * (layout.slots / 4);
    const double consumed = layout.k_blocks * (0.093e-6 * steps + (stage.pool ? 0.20e-6 : 0.42e-6));
    const Cost moved = cost_of(stage, 0, 0);
    const double seconds = 2.45e-6 + std::max(turns * std::max(produced, consumed),
                                              moved.bytes / (0.78 * machine.memory_bandwidth));
    const double done = tiles * layout.conv_rows * 16 * layout.k_blocks * 64 *
                        static_cast<double>(stage.r) * layout.slots * 4;
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
