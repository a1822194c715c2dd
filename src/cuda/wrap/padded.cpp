#include "cuda/wrap/padded.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "cuda/costs.hpp"
#include "cuda/error.hpp"
#include "cuda/family.hpp"
#include "cuda/wrap/around.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "cuda/wrap/pad.hpp"

namespace convoy::cuda {
namespace {

class PreparedPadded final : public PreparedAround {
 public:
  PreparedPadded(std::string_view name, const Stage& stage, const Stage& wide,
                 std::unique_ptr<Prepared> inner, const Machine& machine)
      : PreparedAround(name, std::move(inner), machine),
        stage_(stage),
        wide_(wide),
        wide_shapes_(shapes_of(wide)) {
    const OnDevice on(device_);
    launch_status(pad_ready()).or_throw();
  }

  std::string packing() const override {
    return fmt::format("c{}k{} in {}", stage_.c, stage_.k, inner_->packing());
  }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    const Parameters& from = all.front();
    const std::vector<float> w = widened(from.w);
    std::vector<float> bias;
    Parameters padded{.w = w.data()};
    if (from.bias != nullptr) {
      bias.assign(from.bias, from.bias + stage_.k);
      bias.resize(static_cast<std::size_t>(wide_.k));
      padded.bias = bias.data();
    }
    return inner_->pack({&padded, 1});
  }
  std::vector<float> laid_out(std::size_t block, const float* from) const override {
    return inner_->laid_out(block, widened(from).data());
  }

  std::size_t workspace_bytes() const override {
    return x_bytes() + y_bytes() + bias_bytes() + inner_->workspace_bytes();
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    RunArgs inside = args;
    std::byte* const made = args.workspace + x_bytes();
    inside.workspace = made + y_bytes() + bias_bytes();
    Pad x;
    if (pads_x()) {
      x = {.from = args.x,
           .to = args.workspace,
           .pixels = args.n * stage_.h * stage_.w,
           .channels = stage_.c,
           .wide = wide_.c,
           .from_stride = args.x_stride.w,
           .to_stride = wide_.c,
           .widens = true};
      inside.x = args.workspace;
      inside.x_stride = dense(stage_.h, stage_.w, wide_.c);
    }
    PadBias bias;
    if (bias_bytes() > 0) {
      bias = {args.bias, reinterpret_cast<float*>(made + y_bytes()), stage_.k, wide_.k};
      inside.bias = bias.to;
    }
    if (std::string why = pad_launch(x, bias, overlap_, stream_of(args)); !why.empty())
      return launch_status(why);
    if (!pads_y()) return inner_->run(inside);

    const Index out_h = wide_shapes_.out_h, out_w = wide_shapes_.out_w;
    inside.y = made;
    inside.y_stride = dense(out_h, out_w, wide_.k);
    const Status status = inner_->run(inside);
    if (!status.ok()) return status;
    return launch_status(pad_launch({.from = made,
                                     .to = args.y,
                                     .pixels = args.n * out_h * out_w,
                                     .channels = stage_.k,
                                     .wide = wide_.k,
                                     .from_stride = wide_.k,
                                     .to_stride = args.y_stride.w},
                                    {}, overlap_, stream_of(args)));
  }

 private:
  /// w [K,R,S,C] with as many channels and filters as the inner kernel has; what is added is 0.
  std::vector<float> widened(const float* w) const {
    std::vector<float> wide(static_cast<std::size_t>(wide_shapes_.w_elements));
    const auto c = static_cast<std::size_t>(stage_.c), wide_c = static_cast<std::size_t>(wide_.c);
    const auto taps = static_cast<std::size_t>(stage_.k * stage_.r * stage_.s);
    for (std::size_t tap = 0; tap < taps; ++tap)
      std::copy_n(w + tap * c, c, wide.data() + tap * wide_c);
    return wide;
  }
  bool pads_x() const { return wide_.c != stage_.c; }
  bool pads_y() const { return wide_.k != stage_.k; }
  std::size_t x_bytes() const { return pads_x() ? workspace_part(wide_shapes_.x_elements * 2) : 0; }
  std::size_t y_bytes() const { return pads_y() ? workspace_part(wide_shapes_.y_elements * 2) : 0; }
  std::size_t bias_bytes() const {
    return pads_y() && stage_.bias ? workspace_part(wide_.k * 4) : 0;
  }
  static Strides dense(Index h, Index w, Index c) { return {0, h * w * c, w * c, c, 1}; }

  Stage stage_, wide_;
  Shapes wide_shapes_;
};

}  // namespace

void Padded::refuse(const Stage& stage, const Machine& machine, Reasons& why) const {
  if (stage.c % multiple_ == 0 && stage.k % multiple_ == 0) {
    why.push_back(
        fmt::format("C and K are multiples of {}, as {} needs", multiple_, inner_.name()));
    return;
  }
  if (stage.groups != 1) return;  // unserved: groups would not divide more channels
  const Stage inner = stage_padded(stage, multiple_);
  // A filter of one channel grows 64-fold: what was legal may not be so after.
  if (!problems(inner).empty()) {
    why.emplace_back("too large with more channels");
    return;
  }
  add_missing(why, inner_.refusals(inner, machine));
  const Shapes shapes = shapes_of(inner);
  if ((inner.c != stage.c && !may_pad(shapes.x_elements)) ||
      (inner.k != stage.k && !may_pad(shapes.y_elements)))
    why.emplace_back("a tensor of more than 2^31 - 1 pieces of eight channels");
}

std::vector<Tile> Padded::tiles(const Stage& stage, const Machine& machine) const {
  return {best_tile(inner_, stage_padded(stage, multiple_), machine)};
}

Cost Padded::cost(const Stage& stage, const Tile& tile, const Machine& machine) const {
  const Stage inner = stage_padded(stage, multiple_);
  const Shapes shapes = shapes_of(stage), inner_shapes = shapes_of(inner);
  Cost cost = inner_.cost(inner, tile, machine);
  const PassCosts pass;
  const auto copied = [&](bool copies, Index narrow, Index wide) {
    if (!copies) return;
    const double moved = 2.0 * static_cast<double>(narrow + wide);
    cost.bytes += moved;
    cost.seconds += moved / (pass.copy_memory_share * machine.memory_bandwidth) + pass.copy_launch;
  };
  copied(inner.c != stage.c, shapes.x_elements, inner_shapes.x_elements);
  copied(inner.k != stage.k, shapes.y_elements, inner_shapes.y_elements);
  cost.waste = 1 - 2.0 * static_cast<double>(shapes.macs) / cost.flops;
  return cost;
}

std::unique_ptr<Prepared> Padded::prepare(const Stage& stage, const Tile& tile,
                                          const Machine& machine) const {
  const Stage wide = stage_padded(stage, multiple_);
  return std::make_unique<PreparedPadded>(name(), stage, wide, inner_.prepare(wide, tile, machine),
                                          machine);
}

}  // namespace convoy::cuda
