#include "convoy/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <vector>

#include "core/dtype.hpp"
#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "core/size.hpp"
#include "math/half.hpp"
#include "plan/bound.hpp"
#include "plan/explain.hpp"
#include "plan/operands.hpp"
#include "plan/plan_parts.hpp"
#include "plan/weights_to_host.hpp"

namespace convoy {
namespace {

bool is_channels_first(const ConstTensorView& weights, const std::vector<Index>& krsc) {
  const std::array<Index, 4> kcrs{krsc[0], krsc[3], krsc[1], krsc[2]};
  return weights.rank == 4 && std::equal(kcrs.begin(), kcrs.end(), weights.shape.begin());
}

void check_weights(const Stage& stage, const ConstTensorView& weights, Device device) {
  const std::vector<Index> shape = w_shape(stage);
  const DType own = facts_of(stage.dtype).weights;
  const bool type_fits = weights.dtype == DType::f32 || weights.dtype == own;
  const bool shape_fits = weights && weights.rank == static_cast<int>(shape.size()) &&
                          std::equal(shape.begin(), shape.end(), weights.shape.begin());
  if (!shape_fits || !type_fits)
    throw InvalidOperand(fmt::format(
        "weights: found {}, expected {}[{},{},{},{}] (k, r, s, c/groups of {}). {}",
        describe(weights), own == DType::f32 ? "f32" : fmt::format("f32 or {}", to_text(own)),
        shape[0], shape[1], shape[2], shape[3], to_text(stage),
        !shape_fits && is_channels_first(weights, shape)
            ? "These have PyTorch's order [k, c/groups, r, s]: permute them; a view with other "
              "strides is enough."
            : "Check the stage's sizes, or convert the weights."));
  if (!(weights.device == Device{}) && !(weights.device == device))
    throw InvalidOperand(fmt::format(
        "weights: they are on {}, expected {}. Copy them there first.", to_text(weights.device),
        device == Device{} ? "the host" : fmt::format("the host or {}", to_text(device))));
  check_aligned("weights", weights).or_throw();
  check_reach("weights", weights);
}

}  // namespace

struct Weights::Packed {
  std::shared_ptr<const PackedWeights> weights;
  std::string packing;
};

const std::string& Weights::packing() const {
  static const std::string none;
  return packed_ ? packed_->packing : none;
}

struct Plan::Impl {
  Bound bound;
  Shapes shapes;

  Impl(const Stage& stage, const PlanOptions& options)
      : bound(stage.normalised(), options), shapes(shapes_of(stage)) {}

  /// Throws Error also where memory runs out.
  static std::unique_ptr<Impl> make(const Stage& stage, const PlanOptions& options) {
    try {
      try {
        return std::make_unique<Impl>(stage, options);
      } catch (const std::bad_alloc&) {
        throw no_memory("the plan", stage);
      } catch (const std::length_error&) {
        throw no_memory("the plan", stage);
      }
    } catch (...) {  // also where there is no memory for the message
      rethrow_as_error();
    }
  }

  const Stage& stage() const { return bound.chain().front(); }
  /// Of a view on the host.
  std::shared_ptr<const PackedWeights> pack(const ConstTensorView& weights) const;
  std::shared_ptr<const PackedWeights> pack(const float* w) const {
    const Parameters parameters{.w = w};
    return bound.pack({&parameters, 1});
  }

  Explanation explanation() const {
    Explanation e = convoy::explain(stage(), bound.machine(), bound.selection());
    e.workspace_bytes = bound.workspace_bytes();
    e.warning = bound.tuning_warning();
    return e;
  }

  Status run(const Operands& operands, Stream stream) const {
    if (!bound.has_weights()) return Bound::no_weights();
    RunArgs args;
    Status status = bind_operands(stage(), shapes, bound.machine().device, operands, args);
    if (status.ok()) status = check_workspace(operands, bound.workspace_bytes());
    if (!status.ok() || args.n == 0) return status;
    return bound.run(args, operands.workspace, stream);
  }
};

Plan::Plan(const Stage& stage, const PlanOptions& options) : impl_(Impl::make(stage, options)) {}

Plan::Plan(const Stage& stage, const ConstTensorView& weights, const PlanOptions& options)
    : Plan(stage, options) {
  set_weights(weights);
}
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

std::shared_ptr<const PackedWeights> Plan::Impl::pack(const ConstTensorView& weights) const {
  const Stage& stage = this->stage();
  const bool flips = bound.options().flip_filters;
  const Index filters = stage.k, taps = stage.r * stage.s, channels = stage.c / stage.groups;
  if (weights.contiguous() && weights.dtype == DType::f32 && !flips)
    return pack(static_cast<const float*>(weights.data));
  std::vector<float> dense(static_cast<std::size_t>(filters * taps * channels));
  const auto& stride = weights.stride;
  std::size_t at = 0;
  for (Index k = 0; k < filters; ++k) {
    for (Index tap = 0; tap < taps; ++tap) {
      const Index from = flips ? taps - 1 - tap : tap;
      const Index base = k * stride[0] + from / stage.s * stride[1] + from % stage.s * stride[2];
      for (Index c = 0; c < channels; ++c)
        dense[at++] = math::load(weights.dtype, weights.data, base + c * stride[3]);
    }
  }
  return pack(dense.data());
}

// What a Plan without an Impl is.
constexpr const char* moved_from =
    "this Plan was moved from. Use the Plan that it was moved to, or make a new one.";

Plan::Impl& Plan::impl() const {
  if (!impl_) throw Error(moved_from, StatusCode::moved_from);
  return *impl_;
}

void Plan::set_weights(const ConstTensorView& weights, Stream stream) try {
  use(pack(weights, stream), stream);
} catch (...) {
  rethrow_as_error();
}

Weights Plan::pack(const ConstTensorView& weights, Stream stream) const {
  const Impl& plan = impl();
  try {
    try {
      check_weights(plan.stage(), weights, device());
      Tensor copy;
      if (!(weights.device == Device{})) copy = copy_to_host(weights, stream);
      const ConstTensorView host = copy.view() ? copy.view() : weights;
      return Weights(std::make_shared<Weights::Packed>(
          Weights::Packed{plan.pack(host), plan.bound.packing()}));
    } catch (const std::bad_alloc&) {
      throw no_memory("the packed weights", plan.stage());
    } catch (const std::length_error&) {
      throw no_memory("the packed weights", plan.stage());
    }
  } catch (...) {  // also where there is no memory for the message
    rethrow_as_error();
  }
}

void Plan::use(const Weights& weights, Stream stream) try {
  Impl& plan = impl();
  if (!weights)
    throw Error("weights: found none, expected packed weights. Give the result of Plan::pack.");
  const std::string expected = plan.bound.packing();
  if (weights.packing() != expected)
    throw Error(
        fmt::format("weights: packed as \"{}\", expected \"{}\". Pack them by this plan, or make "
                    "both plans with the same kernel and tile (PlanOptions).",
                    weights.packing(), expected));
  // Whatever the kernel: runs that the stream holds read the former weights, which this may free.
  if (plan.bound.on_gpu()) gpu::synchronize(plan.bound.machine().device, stream);
  plan.bound.use(weights.packed_->weights);
} catch (...) {
  rethrow_as_error();
}

Bound& bound_for_repack(Plan& plan, const ConstTensorView& weights) {
  Plan::Impl& impl = plan.impl();
  check_weights(impl.stage(), weights, plan.device());
  if (!impl.bound.on_gpu() || weights.device == Device{})
    throw Error(
        fmt::format("repack: the plan is on {} and the weights are on {}, expected both on a GPU. "
                    "Use set_weights.",
                    to_text(plan.device()), to_text(weights.device)),
        impl.bound.on_gpu() ? StatusCode::invalid_operand : StatusCode::unsupported);
  return impl.bound;
}

void Plan::repack(const ConstTensorView& weights, Stream stream) {
  try {
    Bound& bound = bound_for_repack(*this, weights);
    try {
      bound.repack(weights, stream);
    } catch (const std::bad_alloc&) {
      throw no_memory("the packed weights", stage());
    } catch (const std::length_error&) {
      throw no_memory("the packed weights", stage());
    }
  } catch (...) {  // also where there is no memory for the message
    rethrow_as_error();
  }
}

Status Plan::run(const Operands& operands, Stream stream) const noexcept {
  try {
    if (!impl_) return {StatusCode::moved_from, moved_from};
    return impl_->run(operands, stream);
  } catch (...) {
    return current_failure();
  }
}

const Stage& Plan::stage() const {
  return impl().stage();
}
const Shapes& Plan::shapes() const {
  return impl().shapes;
}
Device Plan::device() const {
  return impl().bound.machine().device;
}
std::string Plan::kernel() const try {
  return std::string(impl().bound.kernel().name());
} catch (...) {
  rethrow_as_error();
}
std::string Plan::tile() const try { return impl().bound.selection().tile.tile.name; } catch (...) {
  rethrow_as_error();
}
std::string Plan::arithmetic() const try {
  return std::string(impl().bound.kernel().arithmetic());
} catch (...) {
  rethrow_as_error();
}
std::string Plan::packing() const try { return impl().bound.packing(); } catch (...) {
  rethrow_as_error();
}
int Plan::threads() const {
  return impl().bound.machine().threads;
}
std::size_t Plan::workspace_bytes() const {
  return impl().bound.workspace_bytes();
}
std::string Plan::explain() const try { return to_text(impl().explanation()); } catch (...) {
  rethrow_as_error();
}
std::string Plan::explain_json() const try { return to_json(impl().explanation()); } catch (...) {
  rethrow_as_error();
}

}  // namespace convoy
