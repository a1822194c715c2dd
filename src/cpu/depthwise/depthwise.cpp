// The kernel `depthwise`: a filter of its own for each channel. A few multiply-adds an element, so
// it is memory that counts: inputs are read where they lie, and pixels at the border leave out the
// taps outside the image instead of reading packed zeros.
#include "cpu/depthwise/depthwise.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/buffer.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/refusals.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
namespace {
using namespace depthwise_loops;

using math::ceil_div;

// Taps of one axis that lie inside the image, for the output at `at`.
struct Inside {
  Index first = 0, count = 0;
};
Inside inside(Index at, Index stride, Index pad, Index dil, Index taps, Index size) {
  const Index start = at * stride - pad;
  const Index first = start < 0 ? ceil_div(-start, dil) : 0;
  const Index end = start < size ? std::min(taps, (size - 1 - start) / dil + 1) : 0;
  return {std::min(first, taps), std::max<Index>(0, end - std::min(first, taps))};
}

struct DepthwiseWeights final : PackedWeights {
  Buffer<float> taps;  // [R,S,padded C]
};

class DepthwisePrepared final : public CpuPrepared<DepthwiseWeights> {
 public:
  DepthwisePrepared(const Stage& stage, const Machine& machine)
      : stage_(stage),
        shapes_(shapes_of(stage)),
        loops_(loops()),
        epilogue_(stage.act),
        threads_(std::max(1, machine.threads)),
        padded_c_(ceil_div(stage.c, 16) * 16) {
    // Pixels [interior_, interior_end_) of a row have all their columns inside the image.
    const auto whole = [&](Index q) {
      return inside(q, stage.stride.w, stage.pad.left, stage.dil.w, stage.s, stage.w).count ==
             stage.s;
    };
    while (interior_ < shapes_.q && !whole(interior_)) ++interior_;
    interior_end_ = interior_;
    while (interior_end_ < shapes_.q && whole(interior_end_)) ++interior_end_;
  }

  std::string packing() const override { return weights_shape(stage_); }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(padded_c_) * sizeof(float);
  }

  Status run(const RunArgs& args) const noexcept override {
    float* bias = reinterpret_cast<float*>(args.workspace);
    copy_bias(args, stage_, padded_c_, bias);
    const Index rows = args.n * shapes_.p;
    // Tasks of neighbouring rows, which share inputs; a few for each thread.
    const Index tasks = std::min<Index>(rows, threads_ == 1 ? 1 : 4 * threads_);
    args.threads->for_each(tasks, [&](Index task, int) {
      for (Index row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row)
        run_row(args, bias, row / shapes_.p, row % shapes_.p);
    });
    return Status();
  }

 protected:
  void lay_out(const float* w, DepthwiseWeights& to) const override {
    const Index taps = stage_.r * stage_.s;
    to.taps = Buffer<float>(static_cast<std::size_t>(taps * padded_c_));
    std::fill_n(to.taps.data(), to.taps.size(), 0.0F);
    for (Index c = 0; c < stage_.c; ++c)
      for (Index tap = 0; tap < taps; ++tap)
        to.taps[static_cast<std::size_t>(tap * padded_c_ + c)] = w[c * taps + tap];
  }

 private:
  void run_row(const RunArgs& args, const float* bias, Index image, Index p) const {
    const Strides& stride = args.x_stride;
    const Inside rows =
        inside(p, stage_.stride.h, stage_.pad.top, stage_.dil.h, stage_.r, stage_.h);
    PixelArgs pixels;
    pixels.tap_rows = rows.count;
    pixels.row = stage_.dil.h * stride.h;
    pixels.column = stage_.dil.w * stride.w;
    pixels.pixel = stage_.stride.w * stride.w;
    pixels.w_row = stage_.s * padded_c_;
    pixels.w_column = padded_c_;
    pixels.bias = bias;
    pixels.epilogue = epilogue_;
    pixels.y_pixel = args.y_stride.w;
    pixels.channels = stage_.c;
    const Index h = p * stage_.stride.h - stage_.pad.top + rows.first * stage_.dil.h;
    const float* x = static_cast<const float*>(args.x) + image * stride.n + h * stride.h;
    const float* w = weights().taps.data() + rows.first * pixels.w_row;
    float* y = static_cast<float*>(args.y) + image * args.y_stride.n + p * args.y_stride.h;
    const bool three = stage_.s == 3 && stage_.dil.w == 1 && stage_.stride.w <= 2;
    const auto some = [&](Index q, Index count) {
      const Inside columns =
          inside(q, stage_.stride.w, stage_.pad.left, stage_.dil.w, stage_.s, stage_.w);
      pixels.tap_columns = columns.count;
      pixels.x =
          x + (q * stage_.stride.w - stage_.pad.left + columns.first * stage_.dil.w) * stride.w;
      pixels.w = w + columns.first * pixels.w_column;
      pixels.y = y + q * args.y_stride.w;
      if (three && columns.count == 3)
        loops_.three[stage_.stride.w - 1][count - 1](pixels);
      else
        loops_.any[count - 1](pixels);
    };
    for (Index q = 0; q < interior_; ++q) some(q, 1);
    const Index interior = interior_end_ - interior_, tiles = ceil_div(interior, max_pixels);
    for (Index tile = 0; tile < tiles; ++tile) {
      const Index begin = interior * tile / tiles, end = interior * (tile + 1) / tiles;
      some(interior_ + begin, end - begin);
    }
    for (Index q = interior_end_; q < shapes_.q; ++q) some(q, 1);
  }

  Stage stage_;
  Shapes shapes_;
  const Loops& loops_;
  Epilogue epilogue_;
  int threads_;
  Index padded_c_;
  Index interior_ = 0, interior_end_ = 0;
};

class Depthwise final : public StageKernel {
 public:
  Depthwise()
      : StageKernel({.name = "depthwise",
                     .arithmetic = "sequential",
                     .device = DeviceKind::cpu,
                     .exact = true}) {}

  std::vector<std::string> refusals(const Stage& stage, const Machine&) const override {
    return Refusals(stage)
        .expect(stage.groups == stage.c, "groups", stage.groups, "as many as channels")
        .expect(stage.k == stage.c, "K", stage.k, "as many as channels")
        .x_of({DType::f32})
        .f32_y()
        .nhwc()
        .no_norm()
        .no_neuron()
        .no_pool()
        .no_keep()
        .all();
  }

  std::vector<Tile> tiles(const Stage&, const Machine& machine) const override {
    return {{fmt::format("{}x{}", max_pixels, machine.vector_floats), 0}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const Shapes shapes = shapes_of(stage);
    const CoreCosts::Depthwise& costs = core_costs(machine).depthwise;
    Cost cost;
    const double lanes = machine.vector_floats;
    const double vectors = static_cast<double>(shapes.gemm_m) *
                           static_cast<double>(ceil_div(stage.c, machine.vector_floats));
    const double taps = static_cast<double>(stage.r * stage.s);
    const double step = 2 * lanes / (machine.peak_flops / machine.threads);  // of one multiply-add
    cost.flops = 2 * vectors * lanes * taps;
    cost.waste = 1 - 2 * static_cast<double>(shapes.macs) / cost.flops;
    cost.bytes =
        4.0 * static_cast<double>(shapes.x_elements + shapes.w_elements + shapes.y_elements);
    cost.seconds =
        std::max(vectors * (taps * costs.tap_steps + costs.vector_steps) * step / machine.threads,
                 cost.bytes / machine.memory_bandwidth) +
        start_seconds(machine);
    return cost;
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile&,
                                    const Machine& machine) const override {
    return std::make_unique<DepthwisePrepared>(stage, machine);
  }
};

}  // namespace

const Kernel& depthwise() {
  static const Depthwise kernel;
  return kernel;
}

}  // namespace convoy::cpu
