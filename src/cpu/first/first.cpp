// The kernel `first`: first layers with one channel and stride 1, whose filters are 3, 5 or 7 wide.
// The arithmetic is that of `direct`; what differs is that each input is loaded once a row of taps.
#include "cpu/first/first.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/buffer.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/padded_rows.hpp"
#include "cpu/shared/pool_apart.hpp"
#include "cpu/shared/post_ops.hpp"
#include "cpu/shared/refusals.hpp"
#include "cpu/shared/row_bands.hpp"
#include "math/nan.hpp"

namespace convoy::cpu {
namespace {
using math::ceil_div;

struct FirstWeights final : PackedWeights {
  Buffer<float> blocks;  // [blocks][R][S][lanes]
  bool finite = true;
};

class FirstPrepared final : public CpuPrepared<FirstWeights> {
 public:
  FirstPrepared(const Stage& stage, const Machine& machine)
      : stage_(stage),
        shapes_(shapes_of(stage)),
        loops_(first_loops::loops()),
        epilogue_(stage.act),
        post_(stage),
        threads_(std::max(1, machine.threads)),
        blocks_(ceil_div(stage.k, loops_.lanes)) {
    rows_.stage = stage;
    rows_.pixel_pitch = 1;
    rows_.columns = shapes_.q + stage.s - 1;
    rows_.row_pitch = ceil_div(rows_.columns, 16) * 16;
  }

  std::string packing() const override { return weights_shape(stage_); }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(bias_floats() + threads_ * slot_floats()) * sizeof(float);
  }

  Status run(const RunArgs& args) const noexcept override {
    float* bias = reinterpret_cast<float*>(args.workspace);
    copy_bias(args, stage_, bias_floats(), bias);
    for_each_band(args, shapes_.out_h, band_rows, threads_,
                  [&](Index image, Index first, Index count, int slot) {
                    float* packed = bias + bias_floats() + slot * slot_floats();
                    run_band(args, bias, image, first, count, packed);
                  });
    return Status();
  }

 protected:
  void lay_out(const float* w, FirstWeights& to) const override {
    const Index taps = stage_.r * stage_.s;
    to.blocks = Buffer<float>(static_cast<std::size_t>(blocks_ * loops_.lanes * taps));
    std::fill_n(to.blocks.data(), to.blocks.size(), 0.0F);
    for (Index k = 0; k < stage_.k; ++k)
      for (Index tap = 0; tap < taps; ++tap)
        to.blocks[static_cast<std::size_t>((k / loops_.lanes * taps + tap) * loops_.lanes +
                                           k % loops_.lanes)] = w[k * taps + tap];
    to.finite = std::all_of(w, w + stage_.k * taps, [](float v) { return std::isfinite(v); });
  }

 private:
  static constexpr Index band_rows = 32;

  Index bias_floats() const { return ceil_div(blocks_ * loops_.lanes, 16) * 16; }
  Index slot_floats() const { return (2 * band_rows + stage_.r - 1) * rows_.row_pitch; }

  void run_band(const RunArgs& args, const float* bias, Index image, Index first, Index count,
                float* packed) const {
    const Index step = stage_.pool ? 2 : 1;
    first_loops::RowArgs row;
    row.row_pitch = rows_.row_pitch;
    const float* x = packed;
    if (stage_.dtype == DType::f32 && !stage_.norm && stage_.pad == Padding{0} &&
        args.x_stride.w == 1) {
      x = static_cast<const float*>(args.x) + image * args.x_stride.n +
          step * first * args.x_stride.h;
      row.row_pitch = args.x_stride.h;
    } else {
      rows_.pack(args, image, step * first - stage_.pad.top, step * count + stage_.r - 1, packed);
    }
    row.r = stage_.r;
    row.s = stage_.s;
    row.epilogue = epilogue_;
    row.pool = stage_.pool.has_value();
    row.results = shapes_.out_w;
    row.y_pixel = args.y_stride.w;
    float* y = static_cast<float*>(args.y) + image * args.y_stride.n + first * args.y_stride.h;
    for (Index i = 0; i < count; ++i, y += args.y_stride.h) {
      row.x = x + step * i * row.row_pitch;
      if (weights().finite)
        run_row(bias, row, y);
      else
        skip_row(bias, first + i, row.x, row.row_pitch, y, args.y_stride.w);
      finish_rows(post_, {y, 1, 0, row.results, row.y_pixel, stage_.k});
    }
  }

  void run_row(const float* bias, first_loops::RowArgs& row, float* y) const {
    for (Index block = 0; block < blocks_; ++block) {
      row.w = weights().blocks.data() + block * loops_.lanes * stage_.r * stage_.s;
      row.bias = bias + block * loops_.lanes;
      row.valid = std::min(loops_.lanes, stage_.k - block * loops_.lanes);
      row.y = y + block * loops_.lanes;
      loops_.row(row);
    }
  }

  // Infinite or NaN weights must not meet the zeros that stand for taps outside the image.
  void skip_row(const float* bias, Index out, const float* x, Index pitch, float* y,
                Index y_pixel) const {
    const Index step = stage_.pool ? 2 : 1;
    const auto pixel = [&](Index p, Index q, Index k) {
      const Index taps = stage_.r * stage_.s;
      const float* w =
          weights().blocks.data() + k / loops_.lanes * taps * loops_.lanes + k % loops_.lanes;
      float sum = 0;
      for (Index r = 0; r < stage_.r; ++r)
        for (Index s = 0; s < stage_.s; ++s) {
          const Index h = p + r - stage_.pad.top, column = q + s - stage_.pad.left;
          if (h < 0 || h >= stage_.h || column < 0 || column >= stage_.w) continue;
          sum = loops_.multiply_add(x[(p - step * out + r) * pitch + q + s],
                                    w[(r * stage_.s + s) * loops_.lanes], sum);
        }
      return epilogue_.finish(sum, bias[k]);
    };
    for (Index column = 0; column < shapes_.out_w; ++column)
      for (Index k = 0; k < stage_.k; ++k) {
        float best = pixel(step * out, step * column, k);
        for (Index i = 1; i < step * step; ++i) {
          const float value = pixel(step * out + i / 2, step * column + i % 2, k);
          if (math::beats(value, best)) best = value;
        }
        y[column * y_pixel + k] = best;
      }
  }

  Stage stage_;
  Shapes shapes_;
  const first_loops::Loops& loops_;
  Epilogue epilogue_;
  PostOps post_;
  int threads_;
  Index blocks_;
  PaddedRows rows_;
};

constexpr Serves served_by_first{
    .types = Types({DType::f32, DType::u8}, DType::f32),
    .layouts = Layout::nhwc,
    .strides = false,
    .dilation = false,
    .groups = true,
    .bias = true,
    .norm = true,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = none_or_whole_max2,
    .pools_first = false,
    .keep = nothing,
};

class First final : public StageKernel {
 public:
  First()
      : StageKernel({.name = "first",
                     .arithmetic = "sequential",
                     .device = DeviceKind::cpu,
                     .serves = served_by_first,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    Refusals(stage, why)
        .expect(stage.c == 1, "C", stage.c, "1")
        .expect(stage.s == 3 || stage.s == 5 || stage.s == 7, "the filter's width", stage.s,
                "3, 5 or 7")
        .packing(2)
        .plane_of_pool();
  }

  std::vector<Tile> tiles(const Stage&, const Machine& machine) const override {
    return {{fmt::format("row of {} filters", first_loops::row_lanes(machine.vector_floats)), 0}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    return cost_pooled(stage, machine, [&](const Stage& some) { return cost_of(some, machine); });
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile&,
                                    const Machine& machine) const override {
    return prepare_pooled(stage, machine, [&](const Stage& some) {
      return std::make_unique<FirstPrepared>(some, machine);
    });
  }

 private:
  static Cost cost_of(const Stage& stage, const Machine& machine) {
    const Shapes shapes = shapes_of(stage);
    const CoreCosts& costs = core_costs(machine);
    const Index lane_count = first_loops::row_lanes(machine.vector_floats);
    const double lanes = static_cast<double>(lane_count);
    const double vectors =
        static_cast<double>(shapes.gemm_m) * static_cast<double>(ceil_div(stage.k, lane_count));
    const double taps = static_cast<double>(stage.r * stage.s);
    const double cycle = 1 / costs.clock;
    Cost cost;
    cost.flops = 2 * vectors * lanes * taps;
    cost.waste = 1 - 2 * static_cast<double>(shapes.macs) / cost.flops;
    cost.bytes = bytes_of_stage(stage, shapes);
    // Two multiply-adds a cycle.
    const double seconds =
        vectors * (taps / costs.first.multiply_share + costs.first.vector_steps) * cycle / 2 +
        static_cast<double>(shapes.x_elements) * costs.first.pack_float_cycles * cycle;
    cost.seconds = std::max(seconds / machine.threads, cost.bytes / machine.memory_bandwidth) +
                   start_seconds(machine);
    return cost;
  }
};

}  // namespace

const Kernel& first() {
  static const First kernel;
  return kernel;
}

}  // namespace convoy::cpu
