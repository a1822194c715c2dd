// How to compute a stage: a plan binds it to a device, a kernel and a tile, ready to run.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "convoy/error.hpp"
#include "convoy/stage.hpp"
#include "convoy/tensor.hpp"
#include "convoy/threads.hpp"

namespace convoy {

struct PlanOptions {
  Device device{};
  /// CPU threads, at most 4096; 0: the environment's CONVOY_NUM_THREADS, else every core this
  /// process may use. Results do not depend on it. A stage so small that further threads are
  /// predicted to take longer to start than they save runs on a half of them, a quarter and so on,
  /// unless `all_threads` is set.
  int threads = 0;
  bool all_threads = false;
  /// A kernel by name ("winograd4"); empty: the planner chooses. Throws if it does not fit.
  std::string kernel = {};
  /// A tile by name, as `explain` prints it; empty: the planner chooses.
  std::string tile = {};
  /// How many `run` calls compute at once with workspace that the plan owns, 1 to 64; each costs
  /// workspace_bytes(), taken when the plan is made. On the CPU a further run waits until one of
  /// them is done: they share the plan's threads, so that little is lost. On a GPU each stream has
  /// a workspace of its own, and so has each stream of each capture; this many are taken when the
  /// plan is made, further ones by the first run that needs one.
  int concurrent_runs = 1;
  /// Weights are flipped in r and s: true convolution instead of cross-correlation.
  bool flip_filters = false;
  /// Read the tuning cache (see tune.hpp). Off: the cost model alone decides.
  bool use_tuning = true;
  /// On the CPU: runs on these threads, at most `threads` of them; null: on Convoy's own.
  CallerThreads caller_threads = nullptr;
  /// false: the plan takes no memory for workspaces, and every run must be given one in
  /// Operands::workspace.
  bool owns_workspace = true;
};

/// What one run reads and writes, all on the plan's device. Views must match the stage's shapes
/// with n ≤ the plan's n (all the same n); x and y may have any pixel stride ≥ C (K). Outputs must
/// not overlap inputs. (Each has an initialiser, or compilers would warn of those that a call
/// leaves out.)
struct Operands {
  TensorView x{};
  TensorView bias{};                      // [K] f32
  TensorView norm_scale{}, norm_shift{};  // [C] f32
  TensorView y{};
  TensorView pre{}, act{}, idx{};  // where the stage keeps them
  TensorView membrane_in{};        // [N,P,Q,K] f32; empty: 0
  TensorView membrane_out{};       // [N,P,Q,K] f32; empty: not written
  void* workspace = nullptr;       // of workspace_bytes(), 64-byte aligned (on a GPU 256), apart
                                   // from all operands; null: the plan's own
};

/// Weights in the layout that a kernel wants, on its device: made by `Plan::pack`, read by any plan
/// of the same packing. They never change. Copies share them, and they last as long as the last
/// copy or plan that has them.
///
///     const Weights weights = large.pack(w);  // a plan for 64 images
///     large.use(weights);
///     small.use(weights);                     // a plan for one, or one for another stream
class CONVOY_API Weights {
 public:
  Weights() = default;
  explicit operator bool() const { return packed_ != nullptr; }
  /// What plans must agree on to share them: device, kernel and layout. "" where there are none.
  const std::string& packing() const;

 private:
  friend class Plan;
  struct Packed;
  explicit Weights(std::shared_ptr<const Packed> packed) : packed_(std::move(packed)) {}
  std::shared_ptr<const Packed> packed_;
};

/// Ready to run. Making one allocates and may throw Error; running does neither (a failing status
/// has a message, which takes memory). `run` and `pack` may be called from many threads at once;
/// `set_weights`, `use`, a move and the destructor may not overlap a run or each other.
///
///     const Plan plan(stage, weights);
///     plan.run({.x = x, .bias = bias, .y = y}).or_throw();
///
/// Moved from, a Plan is empty: `run` returns a status that says so, everything else throws Error.
/// It may be destroyed and assigned to. References that `stage` and `shapes` gave stay with the
/// plan that it was moved to.
///
/// On the CPU plans may be made and run in destructors of statics, in handlers of atexit, and by
/// detached threads that are still running when the program ends. They may be made and run in a
/// child of fork(), also when another thread was running one at that moment; there they run on one
/// thread where the parent had made a plan for several, with the same bits. All that does not hold
/// in a child of vfork() or of a bare clone(), nor in a handler of a signal.
///
/// What a caller must see to: memory behind every view as large as its shape and strides say, alive
/// and unchanged until the run is over; no two runs at once that write the same memory or share a
/// workspace.
///
/// On a GPU `run` enqueues on the stream and returns: no synchronisation, and it may be captured in
/// a CUDA graph. What goes wrong after that is reported by whatever waits for the stream.
/// A workspace of the plan's own belongs to the stream that ran first with it (with
/// cudaStreamPerThread: to the calling thread's stream), and a further stream's first run takes
/// device memory for another. Beyond 64 streams a new one waits for all work of the device and
/// workspaces begin again. A run that is captured gets a workspace of its capture, which the plan
/// keeps as long as it lives: launches of one graph must follow each other, as its operands demand.
class CONVOY_API Plan {
 public:
  /// Without weights: `run` needs set_weights first. Throws Error where the stage is illegal, with
  /// every reason, and where no kernel fits the device and the options.
  explicit Plan(const Stage& stage, const PlanOptions& options = {});
  /// As that, and set_weights(weights).
  explicit Plan(const Stage& stage, const TensorView& weights, const PlanOptions& options = {});
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  /// `use` of what `pack` gives, for a plan that shares its weights with no other. Throws Error as
  /// they do; the weights from before stay where it is the view that is wrong or memory that is
  /// missing.
  void set_weights(const TensorView& weights, Stream stream = {});

  /// Packs w [K,R,S,C/groups], f32 (or the stage's type), into the layout that the kernel wants.
  /// Any strides will do, on the host and on the plan's GPU, from where it is copied to the host
  /// first, after the work that the stream holds. Complete on return: the view may be freed. Throws
  /// Error when shape, type or device are wrong, or memory runs out.
  Weights pack(const TensorView& weights, Stream stream = {}) const;

  /// Runs read these weights from now on. On a GPU it waits for the stream first; a CUDA graph that
  /// captured a run reads the memory of the former weights: capture it anew. Throws Error where
  /// they are of another packing: then name kernel and tile of the plan that packed them in
  /// PlanOptions. The weights from before stay.
  void use(const Weights& weights, Stream stream = {});

  /// On a GPU: enqueues the packing of weights [K,R,S,C/groups] of this GPU, f32 or the stage's
  /// type, of any strides; runs that are enqueued on the stream later read them. Nothing is copied
  /// to the host and nothing waits, except in the first call and where the strides are others than
  /// before. A CUDA graph may capture it: each launch of the graph then packs what the weights hold
  /// at that moment. The weights must stay until the stream has done this; runs on other streams
  /// read the same packed weights, so order them behind it. May not overlap a run, `set_weights` or
  /// `use` on the host. The bits are those of set_weights. Throws Error: on the CPU, for a kernel
  /// that can't, for a view that is wrong, and in a capture that is the first call.
  ///
  ///     plan.repack(weights, stream);  // weights that training changes on the device
  ///     plan.run({.x = x, .y = y}, stream).or_throw();
  void repack(const TensorView& weights, Stream stream = {});

  /// Computes the stage. Deterministic: the bits of an image do not depend on n, the threads, the
  /// run or tuning. A failing status says what is wrong with which operand; then nothing was
  /// written, except with device_error. Its codes are invalid_operand, no_weights, no_workspace,
  /// moved_from, out_of_memory (for a message) and device_error.
  Status run(const Operands& operands, Stream stream = {}) const noexcept;

  const Stage& stage() const;  // normalised
  const Shapes& shapes() const;
  Device device() const;
  std::string kernel() const;  // its name, as in `explain`
  std::string tile() const;
  std::string arithmetic() const;       // what fixes the bits
  std::string packing() const;          // of the weights, as Weights::packing
  int threads() const;                  // that it may use, as PlanOptions says; 1 on a GPU
  std::size_t workspace_bytes() const;  // of one run; 0: it needs none

  /// Why this kernel: shapes, each kernel's verdict with every refusal, tile, waste, predicted
  /// time, bytes moved fused and unfused. JSON for programs.
  std::string explain() const;
  std::string explain_json() const;

 private:
  struct Impl;
  Impl& impl() const;  // throws Error where there is none
  std::unique_ptr<Impl> impl_;
};

/// Folds an inference batch-norm into weights [K,R,S,C/groups] and bias [K], in place:
/// w *= gamma/sqrt(var+eps), b = (b-mean)*gamma/sqrt(var+eps) + beta. All f32 [K], contiguous, on
/// the host, eps at least 0. Throws Error before anything is changed.
CONVOY_API void fold_batchnorm(const TensorView& weights, const TensorView& bias,
                               const TensorView& gamma, const TensorView& beta,
                               const TensorView& mean, const TensorView& variance,
                               float eps = 1e-5F);

CONVOY_API const char* version();  // "0.1.0"

}  // namespace convoy
