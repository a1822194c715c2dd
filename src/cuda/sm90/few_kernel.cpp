// Kernel `few` as the planner sees it.
#include <algorithm>
#include <cmath>
#include <optional>

#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/sm90/few.hpp"

namespace convoy::cuda::sm90 {
namespace {

class PreparedFew final : public Prepared {
 public:
  PreparedFew(const Stage& stage, const Machine& machine)
      : stage_(stage),
        device_(machine.device.index),
        weights_(device_, static_cast<std::size_t>(shapes_of(stage).w_elements) * 2,
                 "the weights of " + to_text(stage)) {
    const OnDevice on(device_);
    launch_.emplace(stage, few_layout(stage, facts_of(machine)), weights_.data());
  }

  void set_weights(const float* w) override { upload_weights(stage_, w, false, weights_); }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    Status status = check_16_bytes("few", "x", args.x, args.x_stride.w, stage_.dtype);
    if (!status.ok()) return status;
    const OnDevice on(device_);
    return Status(launch_->run({.n = args.n,
                                .x = args.x,
                                .bias = args.bias,
                                .y = args.y,
                                .x_pixel_stride = args.x_stride.w,
                                .y_pixel_stride = args.y_stride.w,
                                .overlap_previous = true},
                               stream_of(args)));
  }

 private:
  Stage stage_;
  int device_;
  DeviceMemory weights_;
  std::optional<FewLaunch> launch_;
};

class Few final : public Kernel {
 public:
  std::string_view name() const override { return "few"; }
  std::string_view arithmetic() const override { return "channels of each tap, then taps"; }
  bool exact() const override { return true; }
  DeviceKind device() const override { return DeviceKind::cuda; }

  std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const override {
    const DeviceFacts facts = facts_of(machine);
    std::vector<std::string> why = few_refusals(stage, facts);
    if (!why.empty()) return why;
    const auto layout = few_layout(stage, facts);
    if (!countable({layout.tiles_x, layout.tiles_y, layout.images}))
      why.emplace_back(too_many_tiles);
    return why;
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    const FewLayout layout = few_layout(stage, facts_of(machine));
    return {{std::to_string(layout.out_w) + "x" + std::to_string(layout.out_h)}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const FewLayout layout = few_layout(stage, facts_of(machine));
    const Cost moved = cost_of(stage, 0, 0);
    const double seconds = 3e-6 + std::max(few_cycles(stage, layout) / 1.7e9,
                                           moved.bytes / (0.85 * machine.memory_bandwidth));
    const double rows = static_cast<double>(stage.k * stage.r * stage.s) / layout.columns;
    const double channels = static_cast<double>(stage.c) / (64.0 * layout.chunks);
    return cost_of(stage, seconds, 1 - rows * channels);
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile&,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedFew>(stage, machine);
  }
};

}  // namespace

const Kernel& few() {
  static const Few kernel;
  return kernel;
}

}  // namespace convoy::cuda::sm90
