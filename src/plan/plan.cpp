#include "convoy/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <new>
#include <stdexcept>
#include <vector>

#include "core/gpu.hpp"
#include "core/process.hpp"
#include "core/size.hpp"
#include "math/half.hpp"
#include "plan/explain.hpp"
#include "plan/operands.hpp"
#include "plan/select.hpp"
#include "plan/workspaces.hpp"

namespace convoy {
namespace {

// Plans with the same number of threads share one arena: layers that run one after the other then
// find its workers awake. The arena goes with the last plan.
std::shared_ptr<Threads> shared_threads(int count) {
  static constinit Shared<std::map<int, std::weak_ptr<Threads>>> shared;
  const auto arenas = shared.lock();
  std::weak_ptr<Threads>& arena = (*arenas)[count];
  std::shared_ptr<Threads> threads = arena.lock();
  if (!threads) arena = threads = std::make_shared<Threads>(count);
  return threads;
}

// A bound of -0 would show where a pool meets zeros of both signs. The stage stays the same: -0
// equals 0.
Stage without_negative_zero(Stage stage) {
  stage.act.a += 0.0F;
  stage.act.b += 0.0F;
  return stage;
}

void check_weights(const Stage& stage, const TensorView& weights) {
  const std::vector<Index> shape = w_shape(stage);
  const bool type_fits =
      weights.dtype == DType::f32 || (weights.dtype == stage.dtype && stage.dtype != DType::u8);
  if (!weights || weights.rank != static_cast<int>(shape.size()) ||
      !std::equal(shape.begin(), shape.end(), weights.shape.begin()) || !type_fits)
    throw Error(fmt::format("weights: found {}, expected {}[{},{},{},{}] (k, r, s, c/groups of {})",
                            describe(weights),
                            stage.dtype == DType::f32 || stage.dtype == DType::u8
                                ? "f32"
                                : fmt::format("f32 or {}", name(stage.dtype)),
                            shape[0], shape[1], shape[2], shape[3], to_text(stage)));
  if (!(weights.device == Device{}))
    throw Error(fmt::format("weights: they are on {}, expected the host. Copy them there first.",
                            to_text(weights.device)));
  check_aligned("weights", weights).or_throw();
  Size reach;  // of the furthest element, in either direction
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const Index stride = weights.stride[axis];
    reach += Size(shape[axis] - 1) * Size(stride < 0 ? -(stride + 1) : stride);
  }
  if (!reach.fits())
    throw Error(fmt::format("weights: {}: no memory is that large. Give the strides in elements.",
                            describe(weights)));
}

// Memory ran out while something was made for this stage.
Error no_memory(const char* what, const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  return Error(
      fmt::format("no memory for {} of {}: its weights are {} numbers, {} bytes in fp32, and a "
                  "kernel keeps a copy in its own order. Use fewer filters or channels, or a "
                  "machine with more memory.",
                  what, to_text(stage), shapes.w_elements, 4 * shapes.w_elements));
}

}  // namespace

struct Plan::Impl {
  Stage stage;
  PlanOptions options;
  Shapes shapes;
  Machine machine;
  std::string tuning_warning;  // declared before what writes to it
  std::shared_ptr<const TuningCache> tuning;
  Selection selection;
  std::shared_ptr<Threads> threads;
  std::unique_ptr<Prepared> prepared;
  std::size_t workspace_bytes = 0;
  mutable Workspaces workspaces;  // CPU
  mutable StreamWorkspaces stream_workspaces;
  bool has_weights = false;

  Impl(const Stage& stage_, const PlanOptions& options_)
      : stage(without_negative_zero(stage_)),
        options(options_),
        shapes(shapes_of(stage_)),
        machine(machine_for(options_)),
        tuning(options_.use_tuning ? user_tuning_cache(tuning_warning) : nullptr),
        selection(select(stage, machine, options, tuning.get())),
        threads(on_gpu() ? nullptr : shared_threads(machine.threads)),
        prepared(selection.kernel().prepare(stage, selection.tile.tile, machine)),
        workspace_bytes(prepared->workspace_bytes()),
        workspaces(on_gpu() ? 0 : workspace_bytes, checked(options_.concurrent_runs)) {
    if (on_gpu() && workspace_bytes > 0)
      stream_workspaces = {workspace_bytes, options.concurrent_runs, machine.device};
  }

  /// Throws Error also where memory runs out.
  static std::unique_ptr<Impl> make(const Stage& stage, const PlanOptions& options) {
    try {
      return std::make_unique<Impl>(stage, options);
    } catch (const std::bad_alloc&) {
      throw no_memory("the plan", stage);
    } catch (const std::length_error&) {
      throw no_memory("the plan", stage);
    }
  }

  bool on_gpu() const { return machine.device.kind == DeviceKind::cuda; }

  void set_weights(const TensorView& weights);
  void pack(const float* weights);

  Explanation explanation() const {
    Explanation e = convoy::explain(stage, machine, selection);
    e.workspace_bytes = workspace_bytes;
    e.warning = tuning_warning;
    return e;
  }

  static int checked(int runs) {
    if (runs < 1 || runs > Workspaces::most)
      throw Error(
          fmt::format("concurrent_runs: {}, expected 1 to {}. For more, give each run a "
                      "workspace of its own.",
                      runs, Workspaces::most));
    return runs;
  }

  Status run(const Operands& operands, Stream stream) const {
    if (!has_weights) return Status("the plan has no weights yet. Call set_weights before run.");
    RunArgs args;
    Status status = bind_operands(stage, shapes, machine.device, operands, args);
    if (!status.ok()) return status;
    args.threads = threads.get();
    args.stream = stream.handle;
    if (workspace_bytes == 0) return prepared->run(args);
    if (operands.workspace) {
      const std::uintptr_t unit = on_gpu() ? 256 : 64;
      if (reinterpret_cast<std::uintptr_t>(operands.workspace) % unit != 0)
        return Status(fmt::format("workspace: its address {} is no multiple of {}. Align it.",
                                  operands.workspace, unit));
      args.workspace = static_cast<std::byte*>(operands.workspace);
      return prepared->run(args);
    }
    if (on_gpu()) {
      args.workspace = stream_workspaces.of(stream.handle);
      return args.workspace ? prepared->run(args) : no_workspace("kept by other streams");
    }
    args.workspace = workspaces.take();
    if (!args.workspace) return no_workspace("taken by runs under way");
    status = prepared->run(args);
    workspaces.give(args.workspace);
    return status;
  }

  Status no_workspace(std::string_view others) const {
    return Status(
        fmt::format("workspace: found none free, of the plan's {} all are {}; expected one for "
                    "this run. Raise PlanOptions::concurrent_runs, or give each run a workspace of "
                    "its own ({} bytes).",
                    options.concurrent_runs, others, workspace_bytes));
  }
};

Plan::Plan(const Stage& stage, const PlanOptions& options) : impl_(Impl::make(stage, options)) {}

Plan::Plan(const Stage& stage, const TensorView& weights, const PlanOptions& options)
    : Plan(stage, options) {
  set_weights(weights);
}
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

// Without weights until the kernel has packed them all.
void Plan::Impl::pack(const float* weights) {
  has_weights = false;
  prepared->set_weights(weights);
  has_weights = true;
}

void Plan::Impl::set_weights(const TensorView& weights) {
  const Index filters = stage.k, taps = stage.r * stage.s, channels = stage.c / stage.groups;
  if (weights.contiguous() && weights.dtype == DType::f32 && !options.flip_filters)
    return pack(static_cast<const float*>(weights.data));
  std::vector<float> dense(static_cast<std::size_t>(filters * taps * channels));
  const auto& stride = weights.stride;
  std::size_t at = 0;
  for (Index k = 0; k < filters; ++k) {
    for (Index tap = 0; tap < taps; ++tap) {
      const Index from = options.flip_filters ? taps - 1 - tap : tap;
      const Index base = k * stride[0] + from / stage.s * stride[1] + from % stage.s * stride[2];
      for (Index c = 0; c < channels; ++c)
        dense[at++] = math::load(weights.dtype, weights.data, base + c * stride[3]);
    }
  }
  pack(dense.data());
}

// What a Plan without an Impl is.
constexpr const char* moved_from =
    "this Plan was moved from. Use the one that it was moved to, or make a new one.";

Plan::Impl& Plan::impl() const {
  if (!impl_) throw Error(moved_from);
  return *impl_;
}

void Plan::set_weights(const TensorView& weights, Stream stream) {
  Impl& plan = impl();
  check_weights(plan.stage, weights);
  if (plan.on_gpu()) gpu::synchronize(plan.machine.device, stream);
  try {
    plan.set_weights(weights);
  } catch (const std::bad_alloc&) {
    throw no_memory("the packed weights", plan.stage);
  } catch (const std::length_error&) {
    throw no_memory("the packed weights", plan.stage);
  }
}

Status Plan::run(const Operands& operands, Stream stream) const noexcept {
  try {
    if (!impl_) return Status(moved_from);
    return impl_->run(operands, stream);
  } catch (...) {
    // Only writing a message allocates; this one fits into the string itself.
    return Status("out of memory");
  }
}

const Stage& Plan::stage() const {
  return impl().stage;
}
const Shapes& Plan::shapes() const {
  return impl().shapes;
}
Device Plan::device() const {
  return impl().machine.device;
}
std::string Plan::kernel() const {
  return std::string(impl().selection.kernel().name());
}
std::string Plan::tile() const {
  return impl().selection.tile.tile.name;
}
std::string Plan::arithmetic() const {
  return std::string(impl().selection.kernel().arithmetic());
}
int Plan::threads() const {
  return impl().machine.threads;
}
std::size_t Plan::workspace_bytes() const {
  return impl().workspace_bytes;
}
std::string Plan::explain() const {
  return to_text(impl().explanation());
}
std::string Plan::explain_json() const {
  return to_json(impl().explanation());
}

}  // namespace convoy
