#include "cuda/wrap/pooled.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "core/size.hpp"
#include "cuda/costs.hpp"
#include "cuda/error.hpp"
#include "cuda/family.hpp"
#include "cuda/wrap/around.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "cuda/wrap/pool.hpp"

namespace convoy::cuda {
namespace {

class PreparedPooled final : public PreparedAround {
 public:
  PreparedPooled(std::string_view name, const Stage& stage, std::unique_ptr<Prepared> inner,
                 const Machine& machine)
      : PreparedAround(name, std::move(inner), machine),
        stage_(stage),
        type_(stage.output_dtype(true)),
        shapes_(shapes_of(stage)) {
    const OnDevice on(device_);
    launch_status(pool_ready(type_)).or_throw();
  }

  std::size_t workspace_bytes() const override { return plane_bytes() + inner_->workspace_bytes(); }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    if (stage_.k % 8 == 0) {
      Status aligned = check_16_bytes(name_, "y", args.y, args.y_stride.w, type_);
      if (aligned.ok()) aligned = check_16_bytes(name_, "pre", args.pre, stage_.k, type_);
      if (aligned.ok()) aligned = check_16_bytes(name_, "act", args.act, stage_.k, type_);
      if (aligned.ok()) aligned = check_16_bytes(name_, "idx", args.idx, stage_.k, DType::i32);
      if (!aligned.ok()) return aligned;
    }
    RunArgs inside = args;
    inside.pre = inside.act = nullptr;
    inside.idx = nullptr;
    inside.y = stage_.keep.pre ? args.pre : stage_.keep.act ? args.act : args.workspace;
    inside.y_stride = {0, shapes_.p * shapes_.q * stage_.k, shapes_.q * stage_.k, stage_.k, 1};
    if (inner_->workspace_bytes() > 0) inside.workspace = args.workspace + plane_bytes();
    const Status status = inner_->run(inside);
    if (!status.ok()) return status;
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    return launch_status(pool_launch(stage_,
                                     {.n = args.n,
                                      .from = inside.y,
                                      .activate = stage_.keep.pre,
                                      .y = args.y,
                                      .y_stride = args.y_stride,
                                      .act = stage_.keep.pre ? args.act : nullptr,
                                      .idx = args.idx},
                                     overlap_, stream_of(args)));
  }

 private:
  /// The inner kernel's output, where no second output holds it.
  std::size_t plane_bytes() const {
    return stage_.keep.pre || stage_.keep.act
               ? 0
               : workspace_part(shapes_.pre_elements * static_cast<Index>(size_of(type_)));
  }

  Stage stage_;
  DType type_;
  Shapes shapes_;
};

}  // namespace

void Pooled::refuse(const Stage& stage, const Machine& machine, Reasons& why) const {
  // Without its activation, a neuron's stage would not even be legal.
  if (stage.act.is_neuron()) return;
  if (inner_.refusals(stage, machine).empty()) {
    why.push_back(fmt::format("{} runs the stage in one launch", inner_.name()));
    return;
  }
  add_missing(why, inner_.refusals(stage_without_pool(stage), machine));
  const Shapes shapes = shapes_of(stage);
  // Windows in the padding may outnumber the plane's pixels.
  const Size pixels = std::max(Size(shapes.p) * shapes.q, Size(shapes.out_h) * shapes.out_w);
  if (!(pixels * (stage.k % 8 == 0 ? stage.k / 8 : stage.k)).fits(std::numeric_limits<int>::max()))
    why.emplace_back("an image has more outputs than 32 bits count");
  refuse_pooled(stage, why);
}

std::vector<Tile> Pooled::tiles(const Stage& stage, const Machine& machine) const {
  return {best_tile(inner_, stage_without_pool(stage), machine)};
}

Cost Pooled::cost(const Stage& stage, const Tile& tile, const Machine& machine) const {
  const Shapes shapes = shapes_of(stage);
  Cost cost = inner_.cost(stage_without_pool(stage), tile, machine);
  // The pass reads the plane (twice where it also writes the activation) and writes the rest.
  const bool both = stage.keep.pre && stage.keep.act;
  const auto size = static_cast<double>(size_of(stage.output_dtype(true)));
  const double plane = size * static_cast<double>(shapes.pre_elements),
               y = static_cast<double>(shapes.y_elements);
  const double moved = plane * (both ? 3 : 1) + y * (stage.keep.idx ? size + 4 : size);
  cost.bytes += moved;
  const PassCosts pass;
  cost.seconds +=
      moved / (pass.memory_share * machine.memory_bandwidth) + pass.launch * (both ? 2 : 1);
  return cost;
}

std::unique_ptr<Prepared> Pooled::prepare(const Stage& stage, const Tile& tile,
                                          const Machine& machine) const {
  return std::make_unique<PreparedPooled>(
      name(), stage, inner_.prepare(stage_without_pool(stage), tile, machine), machine);
}

}  // namespace convoy::cuda
