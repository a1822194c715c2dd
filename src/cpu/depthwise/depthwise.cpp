// The kernel `depthwise`: a filter of its own for each channel, then any pool. A few multiply-adds
// an element, so it is memory that counts: inputs are read where they lie (PixelRows).
#include "cpu/depthwise/depthwise.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/buffer.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/pixel_rows.hpp"
#include "cpu/shared/refusals.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
namespace {
using namespace depthwise_loops;

using math::ceil_div;
using math::round_up;

struct DepthwiseWeights final : PackedWeights {
  Buffer<float> taps;  // [R,S,padded C]
};

class DepthwisePrepared final : public CpuPrepared<DepthwiseWeights>, private PixelRows {
 public:
  DepthwisePrepared(const Stage& stage, const Machine& machine)
      : PixelRows(stage, machine, 16),
        loops_(loops()),
        epilogue_(stage.act),
        padded_c_(round_up(stage.c, 16)) {}

  std::string packing() const override { return weights_shape(stage()); }
  std::size_t workspace_bytes() const override { return bytes_of_rows(); }
  Status run(const RunArgs& args) const noexcept override {
    run_rows(args);
    return Status();
  }

 protected:
  void lay_out(const float* w, DepthwiseWeights& to) const override {
    const Index taps = stage().r * stage().s;
    to.taps = Buffer<float>(static_cast<std::size_t>(taps * padded_c_));
    std::fill_n(to.taps.data(), to.taps.size(), 0.0F);
    for (Index c = 0; c < stage().c; ++c)
      for (Index tap = 0; tap < taps; ++tap)
        to.taps[static_cast<std::size_t>(tap * padded_c_ + c)] = w[c * taps + tap];
  }

 private:
  void run_row(const PixelRow& row) const noexcept override {
    PixelArgs args;
    args.tap_rows = row.tap_rows;
    args.row = row.row;
    args.column = row.column;
    args.pixel = row.pixel;
    args.w_row = stage().s * padded_c_;
    args.w_column = padded_c_;
    args.bias = row.bias;
    args.epilogue = epilogue_;
    args.y_pixel = row.y_pixel;
    args.channels = row.filters;
    const float* const w = weights().taps.data() + row.r * args.w_row + row.k;
    const Index stride = stage().stride.w;
    const bool by_rows = (stage().s == 3 || stage().s == 5) && stage().dil.w == 1 && stride <= 2;
    for (const RowSegment& segment : segments()) {
      args.tap_columns = segment.tap_columns;
      args.w = w + segment.s * padded_c_;
      const bool whole = by_rows && segment.tap_columns == stage().s;
      const auto& loops = whole ? loops_.row[stage().s == 5][stride - 1] : loops_.any;
      each_tile(row, segment, [&](const float* x, float* y, Index pixels) {
        args.x = x + row.k;
        args.y = y;
        loops[pixels - 1](args);
      });
    }
  }

  const Loops& loops_;
  Epilogue epilogue_;
  Index padded_c_;
};

constexpr Serves served_by_depthwise{
    .types = Types(DType::f32, DType::f32),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = true,
    .bias = true,
    .norm = false,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = any_pool,
    .pools_first = false,
    .keep = nothing,
};

class Depthwise final : public StageKernel {
 public:
  Depthwise()
      : StageKernel({.name = "depthwise",
                     .arithmetic = "sequential",
                     .device = DeviceKind::cpu,
                     .serves = served_by_depthwise,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    Refusals(stage, why)
        .expect(stage.groups == stage.c, "groups", stage.groups, "as many as channels")
        .expect(stage.k == stage.c, "K", stage.k, "as many as channels")
        .rows_of_pool();
  }

  std::vector<Tile> tiles(const Stage&, const Machine& machine) const override {
    return {{fmt::format("{}x{}", max_row_pixels, machine.vector_floats), 0}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const CoreCosts::Depthwise& costs = core_costs(machine).depthwise;
    const double taps = static_cast<double>(stage.r * stage.s);
    return cost_of_rows(stage, ceil_div(stage.c, machine.vector_floats), taps,
                        taps * costs.tap_steps + costs.vector_steps, machine);
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
