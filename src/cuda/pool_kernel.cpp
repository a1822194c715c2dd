// Kernel `halo_pool`: what `halo` leaves out. `halo` writes the convolution without its pool, and a
// pass over that, near the speed of a copy, gives any pool, its indices and the second outputs.
#include <algorithm>
#include <limits>

#include "core/size.hpp"
#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/pool.hpp"

namespace convoy::cuda {
namespace {

/// The stage as halo runs it: without a pool, and without the activation where conv + bias is kept.
/// The pass may activate what is rounded already where that changes no bit.
Stage without_pool(const Stage& stage) {
  Stage inner = stage;
  inner.pool.reset();
  inner.keep = {};
  if (stage.keep.pre) inner.act = no_act;
  return inner;
}

class PreparedHaloPool final : public Prepared {
 public:
  PreparedHaloPool(const Stage& stage, std::unique_ptr<Prepared> halo, const Machine& machine)
      : stage_(stage),
        shapes_(shapes_of(stage)),
        halo_(std::move(halo)),
        device_(machine.device.index) {
    const OnDevice on(device_);
    Status(pool_ready()).or_throw();
  }

  void set_weights(const float* w) override { halo_->set_weights(w); }

  std::size_t workspace_bytes() const override {
    return stage_.keep.pre || stage_.keep.act ? 0
                                              : static_cast<std::size_t>(shapes_.pre_elements) * 2;
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    Status status = check_16_bytes("halo_pool", "y", args.y, args.y_stride.w, stage_.dtype);
    if (status.ok()) status = check_16_bytes("halo_pool", "pre", args.pre, stage_.k, stage_.dtype);
    if (status.ok()) status = check_16_bytes("halo_pool", "act", args.act, stage_.k, stage_.dtype);
    if (status.ok()) status = check_16_bytes("halo_pool", "idx", args.idx, stage_.k, DType::i32);
    if (!status.ok()) return status;
    RunArgs inside = args;
    inside.y = stage_.keep.pre ? args.pre : stage_.keep.act ? args.act : args.workspace;
    inside.y_stride = {0, shapes_.p * shapes_.q * stage_.k, shapes_.q * stage_.k, stage_.k, 1};
    status = halo_->run(inside);
    if (!status.ok()) return status;
    const OnDevice on(device_);
    return Status(pool_launch(stage_,
                              {.n = args.n,
                               .from = inside.y,
                               .activate = stage_.keep.pre,
                               .y = args.y,
                               .y_stride = args.y_stride,
                               .act = stage_.keep.pre ? args.act : nullptr,
                               .idx = args.idx},
                              stream_of(args)));
  }

 private:
  Stage stage_;
  Shapes shapes_;
  std::unique_ptr<Prepared> halo_;
  int device_;
};

class HaloPool final : public Kernel {
 public:
  std::string_view name() const override { return "halo_pool"; }
  std::string_view arithmetic() const override { return sm90::halo().arithmetic(); }
  bool exact() const override { return sm90::halo().exact(); }
  DeviceKind device() const override { return DeviceKind::cuda; }

  std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const override {
    // Without its activation such a stage would not even be legal.
    if (stage.act.is_neuron()) return {"neurons are not supported"};
    if (sm90::halo().refusals(stage, machine).empty()) return {"halo runs the stage in one launch"};
    std::vector<std::string> why = sm90::halo().refusals(without_pool(stage), machine);
    const Shapes shapes = shapes_of(stage);
    // Windows in the padding may outnumber the plane's pixels.
    const Size pixels = std::max(Size(shapes.p) * shapes.q, Size(shapes.out_h) * shapes.out_w);
    if (!(pixels * (stage.k / 8)).fits(std::numeric_limits<int>::max()))
      why.emplace_back("an image has more outputs than 32 bits count");
    if (stage.keep.pre && stage.act.kind == Activation::Kind::leaky)
      why.emplace_back("leaky of what is rounded for keep(pre) would round a second time");
    return why;
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    return {best_tile(sm90::halo(), without_pool(stage), machine)};
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    const Shapes shapes = shapes_of(stage);
    Cost cost = sm90::halo().cost(without_pool(stage), tile, machine);
    // The pass reads the plane (twice where it also writes the activation) and writes the rest.
    const bool both = stage.keep.pre && stage.keep.act;
    const double plane = 2.0 * static_cast<double>(shapes.pre_elements),
                 y = static_cast<double>(shapes.y_elements);
    const double moved = plane * (both ? 3 : 1) + y * (stage.keep.idx ? 6 : 2);
    cost.bytes += moved;
    cost.seconds += moved / (0.8 * machine.memory_bandwidth) + (both ? 4e-6 : 2e-6);
    return cost;
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedHaloPool>(
        stage, sm90::halo().prepare(without_pool(stage), tile, machine), machine);
  }
};

}  // namespace

namespace sm90 {
const Kernel& halo_pool() {
  static const HaloPool kernel;
  return kernel;
}
}  // namespace sm90

}  // namespace convoy::cuda
