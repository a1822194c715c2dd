#include "cpu/neuron/neuron.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/size.hpp"
#include "cpu/neuron/neuron_step.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/pool_rows.hpp"
#include "cpu/shared/refusals.hpp"
#include "math/divide.hpp"
#include "math/pool.hpp"

namespace convoy::cpu {
namespace {

using math::ceil_div;
using math::round_up;

// Of a block, in floats: sizes in bytes are still far from 2^63.
constexpr Index most_floats = Index{1} << 40;

/// What the inner kernel runs: the convolution of so many images of one step.
Stage sums_of(const Stage& stage, Index images) {
  Stage sums = stage;
  sums.n = images;
  sums.t = 1;
  sums.act = no_act;
  sums.soft = sums.hold = false;
  sums.pool.reset();
  sums.keep = {};
  return sums;
}

/// The sums are the inner kernel's; neurons and pools are taken here.
constexpr Serves served_by_neurons(const Serves& inner) {
  return {
      .types = inner.types,
      .layouts = inner.layouts,
      .strides = inner.strides,
      .dilation = inner.dilation,
      .groups = inner.groups,
      .bias = inner.bias,
      .norm = inner.norm,
      .acts = neurons,
      .soft = true,
      .hold = true,
      .pools = any_pool,
      .pools_first = false,
      .keep = nothing,
  };
}

/// The pool's windows are 2x2 and cover all pixels.
bool pools_in_registers(const Stage& stage, const Shapes& shapes) {
  return pools_in_fours(stage) && shapes.p % 2 == 0 && shapes.q % 2 == 0;
}

/// Floats of an image: its sums, its membranes between steps, and its spikes before the pool.
struct Planes {
  explicit Planes(const Stage& stage) : Planes(stage, shapes_of(sums_of(stage, 1))) {}

  Size sums;
  bool all_steps = false;  // are taken at once: membranes stay in registers
  Size membranes;
  bool windows = false;   // are pooled in registers
  Index spike_pitch = 0;  // from pixel to pixel: whole vectors
  Size spikes;

  Size all() const { return sums + membranes + spikes; }

 private:
  Planes(const Stage& stage, const Shapes& shapes)
      : sums(Size(shapes.p) * shapes.q * stage.k), windows(pools_in_registers(stage, shapes)) {
    const bool plane = stage.pool && !windows;
    all_steps = (stage.hold && !plane) || stage.t == 1;
    if (!all_steps) membranes = sums;
    spike_pitch = round_up(stage.k, Index{16});
    if (plane) spikes = Size(shapes.p) * shapes.q * spike_pitch;
  }
};

/// Images of a block: a quarter of the L3 holds them.
Index images_of_block(const Stage& stage, const Machine& machine) {
  const auto room = static_cast<Index>(machine.l3_bytes / 4 / sizeof(float));
  const Index image = std::max<Index>(1, Planes(stage).all().value());
  return std::clamp<Index>(room / image, 1, std::max<Index>(1, stage.n));
}

class PreparedNeurons final : public Prepared {
 public:
  PreparedNeurons(const Stage& stage, Index images, std::unique_ptr<Prepared> inner)
      : stage_(stage),
        shapes_(shapes_of(stage)),
        images_(images),
        inner_(std::move(inner)),
        neuron_{stage.act.kind == Activation::Kind::lif, stage.soft, stage.act.tau(),
                stage.act.threshold()},
        steps_(neuron_loops::steps()) {
    const Planes planes(stage);
    all_steps_ = planes.all_steps;
    windows_ = planes.windows;
    plane_ = planes.sums.value();
    membrane_plane_ = planes.membranes.value();
    spike_pitch_ = planes.spike_pitch;
    spike_plane_ = planes.spikes.value();
    pool_.rows = math::pool_rows(stage, shapes_.p);
    pool_.columns = math::pool_columns(stage, shapes_.q);
    pool_.q = shapes_.q;
    pool_.width = spike_pitch_;
    pool_.valid = stage.k;
  }

  std::string packing() const override { return inner_->packing(); }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    return inner_->pack(all);
  }
  void use(std::shared_ptr<const PackedWeights> weights) override {
    inner_->use(std::move(weights));
  }
  std::size_t workspace_bytes() const override { return own_bytes() + inner_->workspace_bytes(); }

  Status run(const RunArgs& args) const noexcept override {
    for (Index first = 0; first < args.n; first += images_) {
      const Index images = std::min(images_, args.n - first);
      const Index at_once = all_steps_ ? stage_.t : 1;
      for (Index t = 0; t < stage_.t; t += at_once) {
        if (t == 0 || !stage_.hold) {
          Status status = make_sums(args, first, images, t);
          if (!status.ok()) return status;
        }
        take_steps(args, first, images, t, at_once);
        if (spike_plane_ > 0) pool_spikes(args, first, images, t);
      }
    }
    return {};
  }

 private:
  std::size_t own_bytes() const {
    return static_cast<std::size_t>(floats(plane_) + floats(membrane_plane_) +
                                    floats(spike_plane_)) *
           sizeof(float);
  }
  /// Of a block, to a cache line.
  Index floats(Index of_image) const { return round_up(images_ * of_image, 16); }
  float* sums(const RunArgs& args) const { return reinterpret_cast<float*>(args.workspace); }
  float* membranes(const RunArgs& args) const { return sums(args) + floats(plane_); }
  float* spikes(const RunArgs& args) const { return membranes(args) + floats(membrane_plane_); }
  float* y_of(const RunArgs& args, Index image, Index t) const {
    return static_cast<float*>(args.y) + image * args.y_stride.n + t * args.y_stride.t;
  }

  Status make_sums(const RunArgs& args, Index first, Index images, Index t) const noexcept {
    RunArgs inside;
    inside.bias = args.bias;
    inside.norm_scale = args.norm_scale;
    inside.norm_shift = args.norm_shift;
    inside.n = images;
    const Index at = first * args.x_stride.n + t * args.x_stride.t;
    inside.x =
        static_cast<const std::byte*>(args.x) + at * static_cast<Index>(size_of(stage_.dtype));
    inside.x_stride = args.x_stride;
    inside.y = sums(args);
    inside.y_stride = {0, plane_, shapes_.q * stage_.k, stage_.k, 1};
    inside.workspace = inner_->workspace_bytes() > 0 ? args.workspace + own_bytes() : nullptr;
    inside.threads = args.threads;
    return inner_->run(inside);
  }

  /// Steps [t, t + steps) of all neurons of the block, a task a row of pixels or of windows.
  void take_steps(const RunArgs& args, Index first, Index images, Index t,
                  Index steps) const noexcept {
    const Index row = shapes_.q * stage_.k, rows = windows_ ? 2 : 1, tasks = shapes_.p / rows;
    const bool last = t + steps == stage_.t;
    args.threads->for_each(images * tasks, [&](Index task, int) {
      const Index image = task / tasks, p = task % tasks;
      const Index at = task * rows * row, of_all = first * plane_ + at;
      neuron_loops::NeuronArgs a{neuron_, windows_, shapes_.q / rows, stage_.k, steps};
      a.row_pitch = row;
      a.sums = sums(args) + at;
      if (t > 0)
        a.before = membranes(args) + at;
      else if (args.membrane_in)
        a.before = args.membrane_in + of_all;
      if (!last)
        a.after = membranes(args) + at;
      else if (args.membrane_out)
        a.after = args.membrane_out + of_all;
      if (spike_plane_ > 0) {
        a.spikes = spikes(args) + task * shapes_.q * spike_pitch_;
        a.spike_pitch = spike_pitch_;
      } else {
        a.spikes = y_of(args, first + image, t) + p * args.y_stride.h;
        a.spike_pitch = args.y_stride.w;
        a.spike_step = args.y_stride.t;
      }
      steps_(a);
    });
  }

  void pool_spikes(const RunArgs& args, Index first, Index images, Index t) const noexcept {
    args.threads->for_each(images * shapes_.out_h, [&](Index task, int) {
      const Index image = task / shapes_.out_h, row = task % shapes_.out_h;
      RowsToPool rows = pool_;
      rows.from = spikes(args) + image * spike_plane_;
      pool_rows(rows, row, row + 1, shapes_.out_w, y_of(args, first + image, t), args.y_stride);
    });
  }

  Stage stage_;
  Shapes shapes_;
  Index images_;
  std::unique_ptr<Prepared> inner_;
  neuron_loops::Neuron neuron_;
  neuron_loops::Steps steps_;
  bool all_steps_ = false, windows_ = false;
  Index plane_ = 0, membrane_plane_ = 0, spike_pitch_ = 0, spike_plane_ = 0;
  RowsToPool pool_;
};

}  // namespace

Neurons::Neurons(std::string_view name, const Kernel& inner)
    : StageKernel(inner.facts().called(name, served_by_neurons(inner.facts().serves))),
      inner_(inner) {}

void Neurons::refuse(const Stage& stage, const Machine& machine, Reasons& why) const {
  add_missing(why, inner_.refusals(sums_of(stage, stage.n), machine));
  if (!Planes(stage).all().fits(most_floats))
    why.emplace_back("sums and membranes of an image take more than 2^40 floats");
}

std::vector<Tile> Neurons::tiles(const Stage& stage, const Machine& machine) const {
  return inner_.tiles(sums_of(stage, images_of_block(stage, machine)), machine);
}

Cost Neurons::cost(const Stage& stage, const Tile& tile, const Machine& machine) const {
  const Shapes shapes = shapes_of(stage);
  const Index images = images_of_block(stage, machine);
  const auto blocks = static_cast<double>(ceil_div(stage.n, images));
  const auto steps = static_cast<double>(stage.t);
  Cost cost = inner_.cost(sums_of(stage, images), tile, machine);
  const Planes planes(stage);
  const double passes = (planes.all_steps ? 1 : steps) * (planes.spikes.value() > 0 ? 2 : 1);
  // Blocks of which the last may have fewer images.
  const double runs =
      static_cast<double>(stage.n) / static_cast<double>(images) * (stage.hold ? 1 : steps);
  // A vector of neurons takes about what one of `general`'s outputs does beside its sum.
  const CoreCosts& costs = core_costs(machine);
  const double vectors = static_cast<double>(shapes.pre_elements) / machine.vector_floats;
  cost.seconds = cost.seconds * runs +
                 vectors * costs.general.output_vector_cycles / costs.clock / machine.threads +
                 blocks * passes * start_seconds(machine);
  cost.flops *= runs;
  cost.bytes = bytes_of_stage(stage, shapes);
  return cost;
}

std::unique_ptr<Prepared> Neurons::prepare(const Stage& stage, const Tile& tile,
                                           const Machine& machine) const {
  const Index images = images_of_block(stage, machine);
  return std::make_unique<PreparedNeurons>(stage, images,
                                           inner_.prepare(sums_of(stage, images), tile, machine));
}

}  // namespace convoy::cpu
