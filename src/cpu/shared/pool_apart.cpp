#include "cpu/shared/pool_apart.hpp"

#include <algorithm>
#include <utility>

#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/pool_rows.hpp"
#include "cpu/shared/refusals.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
namespace {

// The pool takes the operations with it that may follow it.
Stage without_pool(const Stage& stage) {
  Stage plain = stage;
  plain.pool.reset();
  if (const PostOps post(stage); post.behind_pool && !post.none()) plain.act = no_act;
  return plain;
}

// Images whose results before the pool fill half of L3, at least one; as many in every turn as
// leave no small rest.
Index images_at_once(const Stage& stage, const Machine& machine) {
  const Shapes shapes = shapes_of(stage);
  const auto held = static_cast<Index>(machine.l3_bytes / 2 / sizeof(float));
  const Index most = std::clamp(held / (shapes.p * shapes.q * stage.k), Index{1}, stage.n);
  const Index turns = (stage.n + most - 1) / most;
  return (stage.n + turns - 1) / turns;
}

class PooledPrepared final : public Prepared {
 public:
  PooledPrepared(const Stage& stage, const Machine& machine,
                 const std::function<std::unique_ptr<Prepared>(const Stage&)>& prepare)
      : k_(stage.k),
        images_(images_at_once(stage, machine)),
        shapes_(shapes_of(stage)),
        post_(stage),
        rows_(math::pool_rows(stage, shapes_.p)),
        columns_(math::pool_columns(stage, shapes_.q)) {
    Stage some = without_pool(stage);
    some.n = images_;
    stride_ = dense_y(some, images_);
    // The pool reads whole vectors.
    plane_floats_ = math::round_up(images_ * stride_.n + machine.vector_floats, 16);
    inner_ = prepare(some);
  }

  std::string packing() const override { return inner_->packing(); }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    return inner_->pack(all);
  }
  void use(std::shared_ptr<const PackedWeights> weights) override {
    inner_->use(std::move(weights));
  }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(plane_floats_) * sizeof(float) + inner_->workspace_bytes();
  }

  Status run(const RunArgs& args) const noexcept override {
    auto* const plane = reinterpret_cast<float*>(args.workspace);
    RunArgs inner = args;
    inner.y = plane;
    inner.y_stride = stride_;
    inner.workspace = args.workspace + static_cast<std::size_t>(plane_floats_) * sizeof(float);
    for (Index first = 0; first < args.n; first += images_) {
      inner.n = std::min(images_, args.n - first);
      inner.x = static_cast<const float*>(args.x) + first * args.x_stride.n;
      if (Status status = inner_->run(inner); !status.ok()) return status;
      args.threads->for_each(inner.n * shapes_.out_h, [&](Index task, int) {
        const Index image = task / shapes_.out_h, row = task % shapes_.out_h;
        pool_rows({rows_, columns_, shapes_.q, k_, k_, plane + image * stride_.n, 0, post_}, row,
                  row + 1, shapes_.out_w,
                  static_cast<float*>(args.y) + (first + image) * args.y_stride.n, args.y_stride);
      });
    }
    return {};
  }

 private:
  Index k_, images_;
  Shapes shapes_;
  PostOps post_;
  math::PoolAxis rows_, columns_;
  Strides stride_;  // of the results before the pool
  Index plane_floats_ = 0;
  std::unique_ptr<Prepared> inner_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_pooled(
    const Stage& stage, const Machine& machine,
    const std::function<std::unique_ptr<Prepared>(const Stage&)>& prepare) {
  if (!pools_apart(stage)) return prepare(stage);
  return std::make_unique<PooledPrepared>(stage, machine, prepare);
}

Cost cost_pooled(const Stage& stage, const Machine& machine,
                 const std::function<Cost(const Stage&)>& cost_of) {
  if (!stage.pool || !pools_apart(stage)) return cost_of(stage);
  Cost cost = cost_of(without_pool(stage));
  const CoreCosts& costs = core_costs(machine);
  const Shapes shapes = shapes_of(stage);
  // Each window reads its results again, a few operations a vector.
  const double reads = static_cast<double>(stage.pool->window.h * stage.pool->window.w) *
                       static_cast<double>(shapes.y_elements) / machine.vector_floats;
  cost.seconds += reads * costs.pool_vector_cycles / costs.clock / machine.threads;
  if (machine.threads > 1) cost.seconds += start_seconds(machine);
  return cost;
}

}  // namespace convoy::cpu
