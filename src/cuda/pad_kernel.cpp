// Kernel `halo_padded`: `halo` for channels and filters that are no multiples of 8, between copies
// in workspace that are. A side whose number is a multiple is left where it is.
#include <algorithm>
#include <vector>

#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/pad.hpp"

namespace convoy::cuda {
namespace {

Index wide(Index channels) {
  return (channels + 7) / 8 * 8;
}

Stage padded(Stage stage) {
  stage.c = wide(stage.c);
  stage.k = wide(stage.k);
  return stage;
}

std::size_t aligned(Index bytes) {
  return (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
}

class PreparedHaloPadded final : public Prepared {
 public:
  PreparedHaloPadded(const Stage& stage, std::unique_ptr<Prepared> halo, const Machine& machine)
      : stage_(stage),
        wide_(padded(stage)),
        wide_shapes_(shapes_of(wide_)),
        halo_(std::move(halo)),
        device_(machine.device.index) {
    const OnDevice on(device_);
    Status(pad_ready()).or_throw();
  }

  void set_weights(const float* w) override {
    std::vector<float> all(static_cast<std::size_t>(wide_shapes_.w_elements));
    const auto c = static_cast<std::size_t>(stage_.c), wide_c = static_cast<std::size_t>(wide_.c);
    const auto taps = static_cast<std::size_t>(stage_.k * stage_.r * stage_.s);
    for (std::size_t tap = 0; tap < taps; ++tap)
      std::copy_n(w + tap * c, c, all.data() + tap * wide_c);
    halo_->set_weights(all.data());
  }

  std::size_t workspace_bytes() const override {
    return x_bytes() + y_bytes() + bias_bytes() + halo_->workspace_bytes();
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    const OnDevice on(device_);
    RunArgs inside = args;
    std::byte* const made = args.workspace + x_bytes();
    inside.workspace = made + y_bytes() + bias_bytes();
    Pad x;
    if (pads_x()) {
      x = {.from = args.x,
           .to = args.workspace,
           .pixels = args.n * stage_.h * stage_.w,
           .channels = stage_.c,
           .from_stride = args.x_stride.w,
           .to_stride = wide_.c,
           .zeros = true};
      inside.x = args.workspace;
      inside.x_stride = dense(stage_.h, stage_.w, wide_.c);
    }
    PadBias bias;
    if (bias_bytes() > 0) {
      bias = {args.bias, reinterpret_cast<float*>(made + y_bytes()), stage_.k};
      inside.bias = bias.to;
    }
    if (std::string why = pad_launch(x, bias, stream_of(args)); !why.empty()) return Status(why);
    if (!pads_y()) return halo_->run(inside);

    const Index out_h = wide_shapes_.out_h, out_w = wide_shapes_.out_w;
    inside.y = made;
    inside.y_stride = dense(out_h, out_w, wide_.k);
    const Status status = halo_->run(inside);
    if (!status.ok()) return status;
    return Status(pad_launch({.from = made,
                              .to = args.y,
                              .pixels = args.n * out_h * out_w,
                              .channels = stage_.k,
                              .from_stride = wide_.k,
                              .to_stride = args.y_stride.w},
                             {}, stream_of(args)));
  }

 private:
  bool pads_x() const { return wide_.c != stage_.c; }
  bool pads_y() const { return wide_.k != stage_.k; }
  std::size_t x_bytes() const { return pads_x() ? aligned(wide_shapes_.x_elements * 2) : 0; }
  std::size_t y_bytes() const { return pads_y() ? aligned(wide_shapes_.y_elements * 2) : 0; }
  std::size_t bias_bytes() const { return pads_y() && stage_.bias ? aligned(wide_.k * 4) : 0; }
  static Strides dense(Index h, Index w, Index c) { return {0, h * w * c, w * c, c, 1}; }

  Stage stage_, wide_;
  Shapes wide_shapes_;
  std::unique_ptr<Prepared> halo_;
  int device_;
};

class HaloPadded final : public Kernel {
 public:
  std::string_view name() const override { return "halo_padded"; }
  std::string_view arithmetic() const override { return sm90::halo().arithmetic(); }
  bool exact() const override { return sm90::halo().exact(); }
  DeviceKind device() const override { return DeviceKind::cuda; }

  std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const override {
    if (stage.c % 8 == 0 && stage.k % 8 == 0) return {"C and K are multiples of 8, as halo needs"};
    if (stage.groups != 1) return {"groups are not supported"};  // they would not divide the rest
    const Stage inner = padded(stage);
    // A filter of one channel grows 64-fold: what was legal may not be so after.
    if (!problems(inner).empty()) return {"too large with more channels"};
    std::vector<std::string> why = sm90::halo().refusals(inner, machine);
    const Shapes shapes = shapes_of(inner);
    if ((inner.c != stage.c && !may_pad(shapes.x_elements)) ||
        (inner.k != stage.k && !may_pad(shapes.y_elements)))
      why.emplace_back("a tensor of more than 2^31 - 1 pieces of eight channels");
    return why;
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    return {best_tile(sm90::halo(), padded(stage), machine)};
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    const Stage inner = padded(stage);
    const Shapes shapes = shapes_of(stage), inner_shapes = shapes_of(inner);
    Cost cost = sm90::halo().cost(inner, tile, machine);
    const auto copied = [&](bool copies, Index narrow, Index wide) {
      if (!copies) return;
      const double moved = 2.0 * static_cast<double>(narrow + wide);
      cost.bytes += moved;
      cost.seconds += moved / (0.5 * machine.memory_bandwidth) + 3e-6;
    };
    copied(inner.c != stage.c, shapes.x_elements, inner_shapes.x_elements);
    copied(inner.k != stage.k, shapes.y_elements, inner_shapes.y_elements);
    cost.waste = 1 - 2.0 * static_cast<double>(shapes.macs) / cost.flops;
    return cost;
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedHaloPadded>(
        stage, sm90::halo().prepare(padded(stage), tile, machine), machine);
  }
};

}  // namespace

namespace sm90 {
const Kernel& halo_padded() {
  static const HaloPadded kernel;
  return kernel;
}
}  // namespace sm90

}  // namespace convoy::cuda
