// Kernel `few` as the planner sees it.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/sm90/costs.hpp"
#include "cuda/sm90/few.hpp"
#include "cuda/sm90/prepared.hpp"
#include "cuda/sm90/shared_memory.hpp"

namespace convoy::cuda::sm90 {
namespace {

class PreparedFew final : public PreparedLaunch<FewLaunch> {
 public:
  PreparedFew(const Stage& stage, const Machine& machine)
      : PreparedLaunch(stage, machine, few_layout(stage, facts_of(machine))) {}

  std::string packing() const override {
    return fmt::format("{} KRSC k{}c{}r{}s{}", to_text(stage_.dtype), stage_.k, stage_.c, stage_.r,
                       stage_.s);
  }
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    return {w, w + shapes_of(stage_).w_elements};
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    Status status = check_16_bytes("few", "x", args.x, args.x_stride.w, stage_.dtype);
    if (!status.ok()) return status;
    return enqueue(NhwcRun(args), args);
  }
};

class Few final : public StageKernel {
 public:
  Few()
      : StageKernel({.name = "few",
                     .arithmetic = "channels of each tap, then taps",
                     .device = DeviceKind::cuda,
                     .serves = served_by_few,
                     .exact = true,
                     .compute_capability = 90}) {}

  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override {
    refuse_few(stage, facts_of(machine), why);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    const FewLayout layout = few_layout(stage, facts_of(machine));
    return {{few_tile_name(layout)}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const DeviceFacts device = facts_of(machine);
    const FewLayout layout = few_layout(stage, device);
    const FewCosts costs;
    const double seconds =
        costs.launch +
        std::max(few_cycles(stage, layout, device) / (costs.clock * device.clock),
                 cost_of(stage, 0, 0).bytes / (costs.memory * device.memory_bandwidth));
    const double rows = static_cast<double>(stage.k * stage.r * stage.s) / layout.columns;
    const double channels = static_cast<double>(stage.c) / (1.0 * row_channels * layout.chunks);
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
