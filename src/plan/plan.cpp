#include "convoy/plan.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "core/gpu.hpp"
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
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<Threads>> arenas;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Threads> threads = arenas[count].lock();
  if (!threads) arenas[count] = threads = std::make_shared<Threads>(count);
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
  const TensorView wanted(nullptr, DType::f32, shape);
  const bool type_fits =
      weights.dtype == DType::f32 || (weights.dtype == stage.dtype && stage.dtype != DType::u8);
  if (!weights || weights.rank != wanted.rank || weights.shape != wanted.shape || !type_fits)
    throw Error(fmt::format("weights: found {}, expected {}[{},{},{},{}] (k, r, s, c/groups of {})",
                            describe(weights),
                            stage.dtype == DType::f32 || stage.dtype == DType::u8
                                ? "f32"
                                : fmt::format("f32 or {}", name(stage.dtype)),
                            shape[0], shape[1], shape[2], shape[3], to_text(stage)));
  if (weights.device.kind != DeviceKind::cpu)
    throw Error(fmt::format("weights: they are on {}, expected the host. Copy them there first.",
                            to_text(weights.device)));
  if (reinterpret_cast<std::uintptr_t>(weights.data) % size_of(weights.dtype) != 0)
    throw Error(
        fmt::format("weights: their address is no multiple of {}, the size of {}. Align them.",
                    size_of(weights.dtype), name(weights.dtype)));
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

  bool on_gpu() const { return machine.device.kind == DeviceKind::cuda; }

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

Plan::Plan(const Stage& stage, const PlanOptions& options)
    : impl_(std::make_unique<Impl>(stage, options)) {}

Plan::Plan(const Stage& stage, const TensorView& weights, const PlanOptions& options)
    : Plan(stage, options) {
  set_weights(weights);
}
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

void Plan::set_weights(const TensorView& weights, Stream stream) {
  const Stage& stage = impl_->stage;
  check_weights(stage, weights);
  if (impl_->on_gpu()) gpu::synchronize(impl_->machine.device, stream);
  const Index filters = stage.k, taps = stage.r * stage.s, channels = stage.c / stage.groups;
  if (weights.contiguous() && weights.dtype == DType::f32 && !impl_->options.flip_filters) {
    impl_->prepared->set_weights(static_cast<const float*>(weights.data));
    impl_->has_weights = true;
    return;
  }
  std::vector<float> dense(static_cast<std::size_t>(filters * taps * channels));
  const auto& stride = weights.stride;
  std::size_t at = 0;
  for (Index k = 0; k < filters; ++k) {
    for (Index tap = 0; tap < taps; ++tap) {
      const Index from = impl_->options.flip_filters ? taps - 1 - tap : tap;
      const Index base = k * stride[0] + from / stage.s * stride[1] + from % stage.s * stride[2];
      for (Index c = 0; c < channels; ++c)
        dense[at++] = math::load(weights.dtype, weights.data, base + c * stride[3]);
    }
  }
  impl_->prepared->set_weights(dense.data());
  impl_->has_weights = true;
}

Status Plan::run(const Operands& operands, Stream stream) const noexcept {
  try {
    return impl_->run(operands, stream);
  } catch (...) {
    // Only writing a message allocates; this one fits into the string itself.
    return Status("out of memory");
  }
}

const Stage& Plan::stage() const {
  return impl_->stage;
}
const Shapes& Plan::shapes() const {
  return impl_->shapes;
}
Device Plan::device() const {
  return impl_->machine.device;
}
std::string Plan::kernel() const {
  return std::string(impl_->selection.kernel().name());
}
std::string Plan::tile() const {
  return impl_->selection.tile.tile.name;
}
std::string Plan::arithmetic() const {
  return std::string(impl_->selection.kernel().arithmetic());
}
int Plan::threads() const {
  return impl_->machine.threads;
}
std::size_t Plan::workspace_bytes() const {
  return impl_->workspace_bytes;
}
std::string Plan::explain() const {
  return to_text(impl_->explanation());
}
std::string Plan::explain_json() const {
  return to_json(impl_->explanation());
}

}  // namespace convoy
