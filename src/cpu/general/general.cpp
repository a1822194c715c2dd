// Kernel `general`: every legal stage. Blocks of pooling windows are spread over the threads; the
// loops are in general_simd.cpp.
#include "cpu/general/general.hpp"

#include <algorithm>
#include <cmath>

#include "core/buffer.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
namespace general_loops {
namespace {

using math::ceil_div;
// To a cache line.
Size rounded(Size floats) {
  return floats.fits() ? Size(ceil_div(floats.value(), 16) * 16) : floats;
}

// A linear layer is one pixel an image, too little for a register tile: lay the images along w.
bool is_linear(const Stage& stage) {
  return stage.h == 1 && stage.w == 1 && stage.r == 1 && stage.s == 1 && !stage.pool &&
         stage.stride == Extent(1) && stage.pad == Padding{0};
}

Geometry geometry_of(const Stage& stage, Index n) {
  const Shapes shapes = shapes_of(stage);
  Geometry g{n, stage.h, stage.w, shapes.p, shapes.q, shapes.out_h, shapes.out_w, {}, {}, {}, {}};
  if (is_linear(stage)) {
    g.n = 1;
    g.w = g.q = g.out_w = n;
  }
  g.rows = math::pool_rows(stage, g.p);
  g.columns = math::pool_columns(stage, g.q);
  return g;
}

// Windows of one task, down and across.
struct BlockShape {
  Index rows = 1, columns = 1;
};

struct ScratchSizes {
  Size patch, pixels;  // floats
  Size total;
};
// Of a thread, in floats: with 4,096 threads of them sizes in bytes are still far from 2^63.
constexpr Index most_scratch = Index{1} << 40;

ScratchSizes scratch_sizes(const Layer& layer, const Geometry& g, BlockShape shape) {
  const auto extent = [](const math::PoolAxis& axis, Index out, Index count) {
    Index most = 0;
    for (Index i = 0; i < out; i += count) {
      const math::PoolSpan span = math::span_of(axis, out, i, std::min(i + count, out));
      most = std::max(most, span.end - span.begin);
    }
    return most;
  };
  const Stage& s = layer.stage;
  const Index p = extent(g.rows, g.out_h, shape.rows);
  const Index q = extent(g.columns, g.out_w, shape.columns);
  const PatchAxis rows(p, s.r, s.stride.h, s.dil.h), columns(q, s.s, s.stride.w, s.dil.w);
  ScratchSizes sizes;
  sizes.patch =
      rounded(Size(rows.size) * columns.size * layer.c_group * (layer.per_lane ? layer.block : 1));
  sizes.pixels = rounded(Size(p) * q * layer.block);
  sizes.total = sizes.patch + sizes.pixels * (s.act.is_neuron() ? 3 : 1);
  return sizes;
}

Layer layer_of(const Stage& stage, const Machine& machine) {
  Layer layer{stage};
  layer.c_group = stage.c / stage.groups;
  layer.k_group = stage.k / stage.groups;
  layer.block = filter_block(machine.vector_floats);
  layer.per_lane = stage.groups > 1 && layer.k_group < layer.block / 2;
  return layer;
}

// The largest block of windows whose scratch stays in half of L2, as long as each thread gets a
// few tasks.
BlockShape choose_block(const Layer& layer, const Machine& machine) {
  const Geometry g = geometry_of(layer.stage, layer.stage.n);
  const Index room = static_cast<Index>(machine.l2_bytes / 2 / sizeof(float));
  const auto fits = [&](BlockShape shape) {
    return scratch_sizes(layer, g, shape).total.fits(room);
  };
  const auto tasks = [&](BlockShape shape) {
    return g.n * ceil_div(g.out_h, shape.rows) * ceil_div(g.out_w, shape.columns);
  };
  BlockShape shape{1, g.out_w};
  while (shape.columns > 6 && !fits(shape)) shape.columns = ceil_div(shape.columns, 2);
  if (is_linear(layer.stage) && machine.threads > 1)
    shape.columns =
        std::min(shape.columns, std::max<Index>(6, ceil_div(g.out_w, 4 * machine.threads)));
  while (shape.rows < g.out_h) {
    const BlockShape taller{shape.rows * 2, shape.columns};
    if (!fits(taller) || tasks(taller) < 4 * machine.threads) break;
    shape = taller;
  }
  return shape;
}

class GeneralPrepared final : public CpuPrepared<GeneralWeights> {
 public:
  GeneralPrepared(const Stage& stage, const Tile& tile, const Machine& machine)
      : layer_(layer_of(stage, machine)),
        shape_{tile.a, tile.b},
        slots_(machine.threads),
        linear_(is_linear(stage)),
        geometry_(geometry_of(stage, stage.n)),
        sizes_(scratch_sizes(layer_, geometry_, shape_)) {
    const Index per_group = layer_.per_lane ? stage.k : layer_.k_group;
    const Index filter = stage.r * stage.s * layer_.c_group;
    for (Index group = 0; group < stage.k / per_group; ++group)
      for (Index k = 0; k < per_group; k += layer_.block) {
        blocks_.push_back({group * per_group + k, std::min(layer_.block, per_group - k),
                           group * layer_.c_group, weight_floats_});
        weight_floats_ += filter * layer_.block;
      }
  }

  std::string packing() const override { return weights_shape(layer_.stage); }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(slots_ * sizes_.total.value()) * sizeof(float);
  }

  Status run(const RunArgs& args) const noexcept override {
    Geometry g = geometry_;
    g.x = args.x_stride;
    g.y = args.y_stride;
    if (linear_) {
      g.w = g.q = g.out_w = g.columns.size = args.n;
      g.x.w = g.x.n;
      g.y.w = g.y.n;
    } else {
      g.n = args.n;
    }
    const Index down = ceil_div(g.out_h, shape_.rows);
    const Index across = ceil_div(g.out_w, shape_.columns);
    const auto blocks = static_cast<Index>(blocks_.size());
    // With few windows the filters are shared out too; each part then loads the patch anew.
    const Index parts =
        std::clamp<Index>(ceil_div(2 * args.threads->count(), g.n * down * across), 1, blocks);
    const Index per_part = ceil_div(blocks, parts);
    args.threads->for_each(g.n * down * across * parts, [&](Index index, int slot) {
      const Index part = index % parts;
      const Index column = index / parts % across;
      const Index row = index / parts / across % down;
      Task task;
      task.image = index / parts / across / down;
      task.rows = math::span_of(g.rows, g.out_h, row * shape_.rows,
                                std::min(g.out_h, (row + 1) * shape_.rows));
      task.columns = math::span_of(g.columns, g.out_w, column * shape_.columns,
                                   std::min(g.out_w, (column + 1) * shape_.columns));
      task.blocks = blocks_.data() + part * per_part;
      task.block_count = std::min(per_part, blocks - part * per_part);
      if (task.block_count <= 0) return;
      task.weights = &weights();
      run_task(layer_, g, task, scratch(args.workspace, slot), args);
    });
    return {};
  }

 protected:
  void lay_out(const float* w, GeneralWeights& packed) const override {
    const Stage& s = layer_.stage;
    const Index filter = s.r * s.s * layer_.c_group;
    packed.packed = Buffer<float>(static_cast<std::size_t>(weight_floats_));
    std::fill_n(packed.packed.data(), packed.packed.size(), 0.0F);
    for (const PaddedFilters& block : blocks_) {
      float* to = packed.packed.data() + block.weights;
      for (Index lane = 0; lane < block.count; ++lane)
        for (Index i = 0; i < filter; ++i)
          to[i * layer_.block + lane] = w[(block.first + lane) * filter + i];
    }
    packed.finite = std::all_of(w, w + s.k * filter, [](float v) { return std::isfinite(v); });
  }

 private:
  Scratch scratch(std::byte* workspace, int slot) const {
    float* base = reinterpret_cast<float*>(workspace) + slot * sizes_.total.value();
    Scratch scratch;
    scratch.patch = base;
    scratch.sums = base + sizes_.patch.value();
    scratch.act = scratch.sums;
    if (layer_.stage.act.is_neuron()) {  // `hold` needs the sums again in the next step
      scratch.act = scratch.sums + sizes_.pixels.value();
      scratch.membrane = scratch.act + sizes_.pixels.value();
    }
    return scratch;
  }

  Layer layer_;
  BlockShape shape_;
  Index slots_;
  bool linear_;
  Geometry geometry_;
  ScratchSizes sizes_;
  Index weight_floats_ = 0;
  std::vector<PaddedFilters> blocks_;
};

class General final : public StageKernel {
 public:
  General()
      : StageKernel({.name = "general",
                     .arithmetic = "sequential",
                     .device = DeviceKind::cpu,
                     .serves = serves_everything,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override {
    if (machine.device.kind != DeviceKind::cpu) {
      why.emplace_back("runs on the CPU only");
      return;
    }
    // A block is a part of the padded image: only where that is absurd a closer look pays.
    const Size padded = (Size(stage.h) + stage.pad.top + stage.pad.bottom) *
                        (Size(stage.w) + stage.pad.left + stage.pad.right) *
                        (Size(stage.c) + stage.k);
    if (padded.fits(Index{1} << 32)) return;
    const Layer layer = layer_of(stage, machine);
    const Size total =
        scratch_sizes(layer, geometry_of(stage, stage.n), choose_block(layer, machine)).total;
    if (!total.fits(most_scratch))
      why.emplace_back("the input of its smallest block of outputs takes more than 2^40 floats");
  }

  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    const BlockShape shape = choose_block(layer_of(stage, machine), machine);
    return {{"l2", static_cast<int>(shape.rows), static_cast<int>(shape.columns)}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const Shapes shapes = shapes_of(stage);
    const Layer layer = layer_of(stage, machine);
    const Index per_group = layer.per_lane ? stage.k : layer.k_group;
    const Index half = layer.block / 2;  // a last block of one vector costs half
    const double padded =
        static_cast<double>(ceil_div(per_group, half) * half) / static_cast<double>(per_group);
    const double convolutions = stage.hold ? 1.0 : static_cast<double>(stage.t);
    Cost cost;
    cost.flops = 2.0 * static_cast<double>(shapes.macs) * padded * convolutions;
    cost.waste = 1 - 1 / padded;
    cost.bytes =
        static_cast<double>(shapes.x_elements) * static_cast<double>(size_of(stage.dtype)) +
        static_cast<double>(shapes.w_elements) * 4 +
        static_cast<double>(shapes.y_elements) * static_cast<double>(size_of(stage.output_dtype()));
    // Measured with 1 to 256 channels a tap: a tap of few is all loop overhead, and a vector of
    // its own for each factor is bound by loads.
    const CoreCosts::General& costs = core_costs(machine).general;
    const double depth = static_cast<double>(layer.c_group);
    const double efficiency = layer.per_lane
                                  ? costs.lane_share
                                  : costs.multiply_share * depth / (depth + costs.tap_channels);
    const double elements = static_cast<double>(shapes.pre_elements);
    cost.seconds = cost.flops / (machine.peak_flops * efficiency) +
                   elements / machine.vector_floats * costs.output_vector_cycles /
                       core_costs(machine).clock / machine.threads +
                   cost.bytes / machine.memory_bandwidth + costs.run_seconds +
                   (machine.threads > 1 ? start_seconds(machine) : 0);
    return cost;
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<GeneralPrepared>(stage, tile, machine);
  }
};

}  // namespace
}  // namespace general_loops

const Kernel& general() {
  static const general_loops::General kernel;
  return kernel;
}

}  // namespace convoy::cpu
