#include "plan/bound.hpp"

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <map>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/dtype.hpp"
#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "core/gpu_async.hpp"
#include "core/process.hpp"
#include "core/size.hpp"
#include "plan/parts.hpp"

namespace convoy {
namespace {

int checked(int runs) {
  if (runs < 1 || runs > Workspaces::most)
    throw Error(fmt::format(
        "concurrent_runs: {}, expected 1 to {}. For more, give each run its own workspace.", runs,
        Workspaces::most));
  return runs;
}

// Weights come later, but what no GPU of this memory holds is refused at once.
void check_weights_fit(const Chain& chain, const Machine& machine) {
  Size bytes;
  for (const Stage& stage : chain.stages)
    bytes += Size(shapes_of(stage).w_elements) *
             static_cast<Index>(size_of(facts_of(stage.dtype).weights));
  const auto memory = static_cast<Index>(machine.memory_bytes);
  if (memory == 0 || bytes.fits(memory)) return;
  throw NoMemory(
      fmt::format("no memory on {} for the weights of {}: they take {} bytes, the device has {}. "
                  "Use fewer filters or channels.",
                  to_text(machine.device), to_text(chain), bytes.value(), memory));
}

}  // namespace

std::shared_ptr<Threads> shared_threads(int count, CallerThreads caller) {
  using Kind = std::pair<int, CallerThreads>;
  static constinit Shared<std::map<Kind, std::weak_ptr<Threads>>> shared;
  const auto arenas = shared.lock();
  std::weak_ptr<Threads>& arena = (*arenas)[{count, caller}];
  std::shared_ptr<Threads> threads = arena.lock();
  if (!threads) arena = threads = std::make_shared<Threads>(count, caller);
  return threads;
}

NoMemory no_memory(const char* what, const Chain& chain) {
  Size weights;
  for (const Stage& stage : chain.stages) weights += shapes_of(stage).w_elements;
  return NoMemory(
      fmt::format("no memory for {} of {}: its weights are {} numbers, {} bytes in fp32, and a "
                  "kernel keeps a copy in its own order. Use fewer filters or channels, or a "
                  "machine with more memory.",
                  what, to_text(chain), weights.value(), (weights * 4).value()));
}

Bound::Bound(const Chain& chain, const PlanOptions& options, std::optional<Selection> selection)
    : chain_(chain),
      options_(options),
      machine_(machine_for(options)),
      tuning_(options.use_tuning ? user_tuning_cache(tuning_warning_) : nullptr),
      selection_(selection ? *std::move(selection)
                           : select(chain_, machine_, options_, tuning_.get())),
      threads_(on_gpu() ? nullptr
                        : shared_threads(running(machine_, selection_).threads,
                                         options_.caller_threads)),
      prepared_(
          prepare_in_parts(kernel(), chain_, selection_.tile.tile, running(machine_, selection_))),
      workspace_bytes_(prepared_->workspace_bytes()),
      workspaces_(on_gpu() || !options_.owns_workspace ? 0 : workspace_bytes_,
                  checked(options_.concurrent_runs)) {
  if (on_gpu()) check_weights_fit(chain_, machine_);
  if (on_gpu() && options_.owns_workspace && workspace_bytes_ > 0)
    stream_workspaces_ = std::make_unique<StreamWorkspaces>(
        static_cast<std::size_t>(options_.concurrent_runs),
        [bytes = static_cast<Index>(workspace_bytes_), device = machine_.device] {
          return Tensor(DType::u8, {bytes}, device);
        },
        [device = machine_.device] { return gpu::wait_for_all(device); });
}

std::string Bound::packing() const {
  const std::string layout = prepared_->packing();
  // Weights don't tell whether they were flipped; those of another plan would be used as they are.
  return fmt::format("{} {} {}{}", to_text(machine_.device), kernel().name(), layout,
                     options_.flip_filters ? " flipped" : "");
}

void Bound::use(std::shared_ptr<const PackedWeights> weights) {
  has_weights_ = uses_repack_ = false;
  prepared_->use(std::move(weights));
  has_weights_ = true;
}

void Bound::repack(const ConstTensorView& weights, Stream stream) {
  if (!uses_repack_ && gpu::is_captured(machine_.device, stream))
    throw Error(
        "repack: the stream is being captured in a CUDA graph, and a plan's first repack takes "
        "memory. Call repack once before the capture, as PyTorch's warm-up does.");
  repacks().fill(*prepared_, weights, stream);
  use_repack(stream);
}

Repack& Bound::repacks() {
  if (!repack_)
    repack_ = std::make_unique<Repack>(*prepared_, chain_.stages.front(), machine_.device,
                                       options_.flip_filters);
  return *repack_;
}

std::optional<GroupPart> Bound::repack_part(const ConstTensorView& weights,
                                            const gpu::FoldedNorm& norm, std::int32_t* changed,
                                            Stream stream) {
  return repacks().part(*prepared_, weights, norm, changed, stream);
}

void Bound::use_repack(Stream stream) {
  if (uses_repack_) return;
  // Runs that the stream holds read the former weights, which this may free.
  if (has_weights_) gpu::synchronize(machine_.device, stream);
  use(repack_->weights());
  uses_repack_ = true;
}

void Bound::set(std::span<const Parameters> all) {
  has_weights_ = false;
  use(prepared_->pack(all));
}

Status Bound::run(RunArgs& args, void* given, Stream stream) const {
  if (!has_weights_) return no_weights();
  args.threads = threads_.get();
  args.stream = stream.handle;
  if (workspace_bytes_ == 0) return prepared_->run(args);
  if (given) {
    const std::uintptr_t unit = on_gpu() ? 256 : 64;
    if (reinterpret_cast<std::uintptr_t>(given) % unit != 0)
      return {StatusCode::invalid_operand,
              fmt::format("workspace: its address is {}, expected a multiple of {}. Align it.",
                          given, unit)};
    args.workspace = static_cast<std::byte*>(given);
    return prepared_->run(args);
  }
  if (!options_.owns_workspace) return no_workspace();
  if (on_gpu()) {
    return stream_workspaces_->run(gpu::facts_of(machine_.device, stream), [&](std::byte* own) {
      args.workspace = own;
      return prepared_->run(args);
    });
  }
  args.workspace = workspaces_.wait();
  Status status = prepared_->run(args);
  workspaces_.give(args.workspace);
  return status;
}

RunTrace Bound::trace(std::span<RunArgs, 2> runs, const std::function<void()>& warm_up,
                      Stream stream) const {
  if (!has_weights_) no_weights().or_throw();
  for (RunArgs& args : runs) args.stream = stream.handle;
  const std::array both{runs[0], runs[1]};
  return prepared_->trace(both, warm_up);
}

Status Bound::no_weights() {
  return {StatusCode::no_weights, "the plan has no weights yet. Call set_weights before run."};
}

Status Bound::no_workspace() const {
  return {StatusCode::no_workspace,
          fmt::format("workspace: none is given, expected {} bytes for this run, because the plan "
                      "was made with owns_workspace = false. Set Operands::workspace.",
                      workspace_bytes_)};
}

}  // namespace convoy
