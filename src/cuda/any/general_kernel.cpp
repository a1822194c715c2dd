// Kernel `general` on a GPU, as the planner sees it.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/any/general.hpp"
#include "cuda/costs.hpp"
#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/prepared_stage.hpp"

namespace convoy::cuda {
namespace {

class PreparedGeneral final : public PreparedStage<GeneralLaunch> {
 public:
  PreparedGeneral(const Stage& stage, const Machine& machine)
      : PreparedStage(stage, machine, machine.compute_capability >= 90) {}

  std::string packing() const override {
    return fmt::format("{} k{}r{}s{}c{}", to_text(compute_type(stage_)), stage_.k, stage_.r,
                       stage_.s, stage_.c / stage_.groups);
  }
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    return {w, w + shapes_of(stage_).w_elements};
  }
  DType held() const override { return DType::f32; }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    return enqueue(args);
  }
};

class General final : public StageKernel {
 public:
  General()
      : StageKernel({.name = "general",
                     .arithmetic = "sequential",
                     .device = DeviceKind::cuda,
                     .serves = serves_everything,
                     .exact = true}) {}

  void refuse(const Stage&, const Machine&, Reasons&) const override {}
  std::vector<Tile> tiles(const Stage&, const Machine&) const override { return {{"output"}}; }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    // Overlapping windows of a pool are computed anew.
    const Shapes shapes = shapes_of(stage);
    const auto again_along = [](Index windows, Index window, Index plane) {
      return static_cast<double>(windows) * static_cast<double>(std::min(window, plane)) /
             static_cast<double>(plane);
    };
    double again = 1;
    if (stage.pool)
      again = again_along(shapes.out_h, stage.pool->window.h, shapes.p) *
              again_along(shapes.out_w, stage.pool->window.w, shapes.q);
    const double steps = stage.hold ? 1.0 : static_cast<double>(stage.t);
    const double flops = 2.0 * static_cast<double>(shapes.macs) * steps * again;
    const GeneralCosts costs;
    // One output's products follow each other in a thread.
    const Index pixels = stage.pool ? stage.pool->window.h * stage.pool->window.w : 1;
    const double in_line = static_cast<double>(pixels) * steps *
                           static_cast<double>(stage.r * stage.s * (stage.c / stage.groups));
    return cost_of(stage,
                   costs.launch + std::max(flops / (costs.multiply_share * machine.peak_flops),
                                           in_line * costs.product),
                   again > 1 ? 1 - 1 / again : 0);
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile&,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedGeneral>(stage, machine);
  }
};

}  // namespace

const Kernel& general() {
  static const General kernel;
  return kernel;
}

}  // namespace convoy::cuda
