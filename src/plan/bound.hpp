// A chain bound to a device: what `Plan` is made of, and what runs the chains of a network.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "convoy/plan.hpp"
#include "core/chain.hpp"
#include "core/failure.hpp"
#include "core/machine.hpp"
#include "core/threads.hpp"
#include "core/trace.hpp"
#include "plan/repack.hpp"
#include "plan/select.hpp"
#include "plan/stream_workspaces.hpp"
#include "plan/workspaces.hpp"

namespace convoy {

/// The chain with its kernel, tile and workspaces. Thread safety and the end of the program are as
/// for `Plan`.
class Bound {
 public:
  /// Selects, unless that was done, and prepares. Throws Error as `select` does, and where memory
  /// runs out. A kernel that is given with its tile need not be in the table.
  explicit Bound(const Chain& chain, const PlanOptions& options,
                 std::optional<Selection> selection = {});
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  Chain chain() const { return chain_; }
  const PlanOptions& options() const { return options_; }
  const Machine& machine() const { return machine_; }
  const Selection& selection() const { return selection_; }
  const Kernel& kernel() const { return selection_.kernel(); }
  const std::string& tuning_warning() const { return tuning_warning_; }
  Threads* threads() const { return threads_.get(); }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  bool on_gpu() const { return machine_.device.kind == DeviceKind::cuda; }
  bool has_weights() const { return has_weights_; }
  /// The status of a run without them.
  static Status no_weights();

  /// Packs one element a stage, for this plan and all that share its layout.
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const {
    return prepared_->pack(all);
  }
  /// What plans must agree on to share packed weights: the device, the kernel and its layout.
  std::string packing() const;
  void use(std::shared_ptr<const PackedWeights> weights);
  /// Packs weights of the GPU into memory of this plan's own, in the order of the stream, and uses
  /// them (plan/repack.hpp). Only of a chain of one stage. Throws Error; then the weights from
  /// before stay in use.
  void repack(const ConstTensorView& weights, Stream stream);
  /// The same for a RepackGroup, which compares and packs the weights itself.
  Repack& repacks();
  std::optional<GroupPart> repack_part(const ConstTensorView& weights, const gpu::FoldedNorm& norm,
                                       std::int32_t* changed, Stream stream);
  /// Uses what a RepackGroup put on the stream.
  void use_repack(Stream stream);
  /// `use` of what `pack` gives; without weights until all are there.
  void set(std::span<const Parameters> all);

  /// Runs `args`, whose operands are checked; fills in workspace (`given`, or one of its own;
  /// null), threads and stream.
  Status run(RunArgs& args, void* given, Stream stream) const;

  /// Of a GPU's kernel; see Prepared.
  std::string why_no_trace() const { return prepared_->why_no_trace(); }
  /// Two runs, of which the second is told; they go behind what `warm_up` enqueues. Only of kernels
  /// without a workspace. Throws Error.
  RunTrace trace(std::span<RunArgs, 2> runs, const std::function<void()>& warm_up,
                 Stream stream) const;

 private:
  Status no_workspace() const;

  OwnedChain chain_;
  PlanOptions options_;
  Machine machine_;
  std::string tuning_warning_;  // declared before what writes to it
  std::shared_ptr<const TuningCache> tuning_;
  Selection selection_;
  std::shared_ptr<Threads> threads_;
  std::unique_ptr<Prepared> prepared_;
  std::size_t workspace_bytes_ = 0;
  mutable Workspaces workspaces_;                        // CPU
  std::unique_ptr<StreamWorkspaces> stream_workspaces_;  // GPU; null: every run is given one
  std::unique_ptr<Repack> repack_;                       // since the first of them
  bool uses_repack_ = false;
  bool has_weights_ = false;
};

/// Threads that all plans of so many share: layers that run one after the other then find its
/// workers awake. They go with the last plan. caller: as in PlanOptions.
std::shared_ptr<Threads> shared_threads(int count, CallerThreads caller);

/// What is thrown where memory runs out while something is made for this chain.
NoMemory no_memory(const char* what, const Chain& chain);

}  // namespace convoy
