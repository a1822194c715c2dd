#include "cuda/wrap/fired.hpp"

#include "cuda/costs.hpp"
#include "cuda/error.hpp"
#include "cuda/family.hpp"
#include "cuda/wrap/around.hpp"
#include "cuda/wrap/fire.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "cuda/wrap/pool.hpp"

namespace convoy::cuda {
namespace {

class PreparedFired final : public PreparedAround {
 public:
  PreparedFired(std::string_view name, const Stage& stage, std::unique_ptr<Prepared> inner,
                const Machine& machine)
      : PreparedAround(name, std::move(inner), machine),
        stage_(stage),
        type_(stage.output_dtype(true)),
        shapes_(shapes_of(stage)),
        apart_(pools_apart(stage)) {
    const OnDevice on(device_);
    launch_status(fire_ready(stage_)).or_throw();
    if (apart_) launch_status(pool_ready(type_)).or_throw();
  }

  std::size_t workspace_bytes() const override {
    return sums_bytes() + plane_bytes() + inner_->workspace_bytes();
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    Status aligned = check_outputs(args);
    if (!aligned.ok()) return aligned;
    auto* const sums = reinterpret_cast<float*>(args.workspace);
    RunArgs inside = args;
    inside.n = args.n * turns_of(stage_);
    inside.pre = inside.act = nullptr;
    inside.idx = nullptr;
    inside.membrane_in = nullptr;
    inside.membrane_out = nullptr;
    inside.y = sums;
    inside.y_stride = {0, shapes_.p * shapes_.q * stage_.k, shapes_.q * stage_.k, stage_.k, 1};
    if (inner_->workspace_bytes() > 0)
      inside.workspace = args.workspace + sums_bytes() + plane_bytes();
    const Status status = inner_->run(inside);
    if (!status.ok()) return status;
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    FireRun pass{.n = args.n,
                 .sums = sums,
                 .y = args.y,
                 .y_stride = args.y_stride,
                 .pre = args.pre,
                 .act = args.act,
                 .membrane_in = args.membrane_in,
                 .membrane_out = args.membrane_out};
    if (apart_) {
      pass.y = nullptr;
      if (pass.act == nullptr) pass.act = args.workspace + sums_bytes();
    }
    std::string why = fire_launch(stage_, pass, overlap_, stream_of(args));
    if (why.empty() && apart_)
      why = pool_launch(stage_of_spikes(stage_),
                        {.n = args.n * stage_.t,
                         .from = pass.act,
                         .y = args.y,
                         .y_stride = args.y_stride,
                         .idx = args.idx},
                        overlap_, stream_of(args));
    return launch_status(why);
  }

 private:
  /// Those of the pass lie on its vectors, those of a pool's pass on 16 bytes.
  Status check_outputs(const RunArgs& args) const {
    const bool sixteen = apart_ && stage_.k % 8 == 0;
    const int bytes =
        sixteen ? 16
                : static_cast<int>(fire_channels(stage_.k) * static_cast<Index>(size_of(type_)));
    Status aligned = check_alignment(name_, "y", args.y, args.y_stride.w, type_, bytes);
    if (aligned.ok()) aligned = check_alignment(name_, "pre", args.pre, stage_.k, type_, bytes);
    if (aligned.ok()) aligned = check_alignment(name_, "act", args.act, stage_.k, type_, bytes);
    if (aligned.ok() && sixteen)
      aligned = check_16_bytes(name_, "idx", args.idx, stage_.k, DType::i32);
    return aligned;
  }
  std::size_t sums_bytes() const {
    return workspace_part(shapes_.pre_elements / (stage_.hold ? stage_.t : 1) *
                          Index{sizeof(float)});
  }
  /// Spikes before a pool of its own pass, where no second output holds them.
  std::size_t plane_bytes() const {
    if (!apart_ || stage_.keep.act) return 0;
    return workspace_part(shapes_.pre_elements * static_cast<Index>(size_of(type_)));
  }

  Stage stage_;
  DType type_;
  Shapes shapes_;
  bool apart_;
};

}  // namespace

void Fired::refuse(const Stage& stage, const Machine& machine, Reasons& why) const {
  refuse_fire(stage, why);
  if (why.empty()) why = inner_.refusals(stage_of_sums(stage), machine);
}

std::vector<Tile> Fired::tiles(const Stage& stage, const Machine& machine) const {
  return {best_tile(inner_, stage_of_sums(stage), machine)};
}

Cost Fired::cost(const Stage& stage, const Tile& tile, const Machine& machine) const {
  const Shapes shapes = shapes_of(stage);
  const NeuronPassCosts pass;
  const auto size = static_cast<double>(size_of(stage.output_dtype(true)));
  const auto planes = static_cast<double>(shapes.pre_elements);
  const double sums = 4 * planes / static_cast<double>(stage.hold ? stage.t : 1);
  const double spikes = size * static_cast<double>(shapes.y_elements) +
                        size * planes * (stage.keep.pre + stage.keep.act);
  Cost cost = cost_of(stage, 0, 0);
  const Cost products = inner_.cost(stage_of_sums(stage), tile, machine);
  cost.flops = products.flops;
  cost.waste = products.waste;
  cost.bytes += 2 * sums;
  // What the L2 does not hold comes from memory, and went there.
  const bool held = sums <= pass.held_share * static_cast<double>(machine.l2_bytes);
  const double memory = pass.memory_share * machine.memory_bandwidth,
               l2 = pass.l2 * machine.multiprocessors * machine.clock_hz;
  cost.seconds = products.seconds + pass.launch + (sums + spikes) / (held ? l2 : memory) +
                 (held ? 0 : sums / memory);
  if (pools_apart(stage)) {
    const PassCosts pool;
    const double moved = size * (planes * 2 + static_cast<double>(shapes.y_elements));
    cost.bytes += moved;
    cost.seconds += pool.launch + moved / (pool.memory_share * machine.memory_bandwidth);
  }
  return cost;
}

std::unique_ptr<Prepared> Fired::prepare(const Stage& stage, const Tile& tile,
                                         const Machine& machine) const {
  return std::make_unique<PreparedFired>(
      name(), stage, inner_.prepare(stage_of_sums(stage), tile, machine), machine);
}

}  // namespace convoy::cuda
