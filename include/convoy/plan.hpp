/// @file
/// Running a stage: a `Plan` binds a `Stage` to a device, a kernel and a tile.
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

class Bound;

/// The options of a Plan. None changes a bit of the results, except `device`, `kernel` and
/// `flip_filters`.
struct PlanOptions {
  Device device{};  ///< the device that computes
  /// The largest number of CPU threads, at most 4096. 0: the environment variable
  /// CONVOY_NUM_THREADS, or every core that this process may use. A small stage runs on half of
  /// them, a quarter and so on, if more threads are predicted to take longer to start than they
  /// save.
  int threads = 0;
  /// Run on all `threads`, also if fewer are predicted to be faster.
  bool all_threads = false;
  /// A kernel by its name, for example "winograd4". Empty: the planner chooses.
  std::string kernel = {};
  /// A tile by its name, as Plan::explain prints it. Empty: the planner chooses.
  std::string tile = {};
  /// The number of runs, 1 to 64, that may compute at once with workspaces of the plan. The plan
  /// allocates this number of workspaces of Plan::workspace_bytes() each. On the CPU a further run
  /// waits until another run is done. On a GPU each stream has its own workspace, and a run on a
  /// further stream allocates one; docs/start/gpu.md has the rules.
  int concurrent_runs = 1;
  /// Flip the weights in r and s: true convolution instead of cross-correlation.
  bool flip_filters = false;
  /// Read the tuning cache, see tune(). If false, the cost model decides.
  bool use_tuning = true;
  /// On the CPU: run on your own threads, at most `threads` of them. Null: Convoy's threads.
  CallerThreads caller_threads = nullptr;
  /// Whether the plan allocates workspaces. If false, each run must be given one in
  /// Operands::workspace.
  bool owns_workspace = true;
};

/// The tensors of one run, all on the plan's device.
///
/// - Shapes and types must be those of the stage. N may be any number from 0 to the stage's n, and
///   is the same for all operands. For N = 0 a view may have a null pointer.
/// - x and y may have gaps between pixels: any pixel stride of at least C or K elements, as in
///   slices of a concatenation. All other operands are contiguous.
/// - Outputs must not overlap inputs or each other. Two channel slices of one tensor do not
///   overlap. Membranes that go from run to run need two tensors, which take turns.
/// - An operand that the stage does not have must be empty.
///
/// A run that breaks a rule returns StatusCode::invalid_operand and writes nothing. The memory of
/// each operand must stay alive and unchanged until the run is over; on a GPU that is after the
/// work of the stream.
struct Operands {
  ConstTensorView x{};            ///< the images, see x_shape()
  ConstTensorView bias{};         ///< [K] f32; for a stage with `bias`
  ConstTensorView norm_scale{},   ///< [C] f32; for a stage with `norm`
      norm_shift{};               ///< [C] f32; for a stage with `norm`
  TensorView y{};                 ///< the result, see y_shape()
  TensorView pre{},               ///< conv + bias, see pre_shape(); with Keep::pre
      act{},                      ///< the activation's output, see pre_shape(); with Keep::act
      idx{};                      ///< i32, y_shape(): p*Q + q of each maximum; with Keep::idx
  ConstTensorView membrane_in{};  ///< a neuron's initial membranes, see membrane_shape(); empty: 0
  TensorView membrane_out{};      ///< receives the final membranes; empty: they are not written
  /// Scratch memory of Plan::workspace_bytes(), aligned to 64 bytes (on a GPU 256) and apart from
  /// all operands. Its content does not matter. Runs at the same time need different ones. Null:
  /// the plan's own.
  void* workspace = nullptr;
};

/// Weights in the layout of a kernel, on its device. Plan::pack makes them, and every plan with the
/// same packing can use them. They never change. Copies share the memory, which is freed with the
/// last copy or plan that refers to it.
///
///     const Weights weights = large.pack(w);  // a plan for 64 images
///     large.use(weights);
///     small.use(weights);                     // a plan for one image, or for another stream
class CONVOY_API Weights {
 public:
  /// No weights.
  Weights() = default;
  /// Whether there are weights.
  explicit operator bool() const { return packed_ != nullptr; }
  /// Device, kernel and layout as text. Plans with an equal Plan::packing can use these weights.
  /// Empty if there are none.
  const std::string& packing() const;

 private:
  friend class Plan;
  struct Packed;
  explicit Weights(std::shared_ptr<const Packed> packed) : packed_(std::move(packed)) {}
  std::shared_ptr<const Packed> packed_;
};

/// A stage, bound to a device, a kernel and a tile.
///
///     const Plan plan(stage, weights);
///     plan.run({.x = x, .bias = bias, .y = y}).or_throw();
///
/// **Errors and memory.** run() is noexcept and returns a Status; every other function throws Error
/// if it fails. run() allocates only the text of a message and, on a GPU, the workspace of a
/// further stream or capture.
///
/// **Threads.** run() and pack() may be called from several threads at once. set_weights(), use(),
/// repack(), a move and the destructor may not overlap a run or each other. Runs at the same time
/// must not write the same memory or share an Operands::workspace.
///
/// **Moves.** After a move the source is empty: run() returns StatusCode::moved_from, all other
/// functions throw Error, and it can be destroyed or assigned to. References from stage() and
/// shapes() stay valid and belong to the target.
///
/// **Processes.** On the CPU, plans may be made and run in destructors of static objects, in atexit
/// handlers, in detached threads while the program ends, and in a child of fork(). A child runs
/// them on one thread if the parent had made a plan for several; the bits are the same. Do not use
/// plans in a child of vfork() or of a bare clone(), or in a signal handler.
/// docs/trust/guarantees.md has the details.
///
/// **GPUs.** run() enqueues on the stream and returns without waiting, and a CUDA graph may capture
/// it. docs/start/gpu.md explains streams, workspaces and graphs.
class CONVOY_API Plan {
 public:
  /// A plan without weights: call set_weights(), use() or repack() before run(). Throws Error if
  /// the stage is illegal, with every reason, if no kernel fits the device and the options, if the
  /// device is missing, and if memory runs out.
  explicit Plan(const Stage& stage, const PlanOptions& options = {});
  /// A plan with weights; see set_weights(). Throws Error as set_weights() and the constructor
  /// before.
  explicit Plan(const Stage& stage, const ConstTensorView& weights,
                const PlanOptions& options = {});
  /// Frees the plan's memory. It may not overlap a run.
  ~Plan();
  /// Takes the plan over; the source is empty afterwards.
  Plan(Plan&&) noexcept;
  /// Frees this plan and takes the other one over, which is empty afterwards.
  Plan& operator=(Plan&&) noexcept;

  /// Packs weights and uses them: pack(), then use(). For a plan that does not share its weights.
  /// Throws Error as these two. After an error about the view or the host's memory, the former
  /// weights stay in use.
  void set_weights(const ConstTensorView& weights, Stream stream = {});

  /// Packs weights [K,R,S,C/groups] into the layout of the plan's kernel. They are f32 or of the
  /// stage's type, with any strides, on the host or on the plan's GPU. Weights on the GPU are
  /// copied to the host first, after the earlier work of the stream. The packing is complete on
  /// return, and the view may be freed. Throws Error if shape, type, strides or device are wrong,
  /// and if memory runs out.
  Weights pack(const ConstTensorView& weights, Stream stream = {}) const;

  /// Sets the weights for all later runs. On a GPU it waits for the stream first. A CUDA graph that
  /// captured a run still reads the former weights: capture it again. Throws Error if there are no
  /// weights, or if they have another packing(): then make this plan with PlanOptions::kernel and
  /// PlanOptions::tile of the plan that packed them. After an error the former weights stay.
  void use(const Weights& weights, Stream stream = {});

  /// On a GPU: enqueues the packing of weights that are on the GPU. Runs that are enqueued on the
  /// same stream later read them. For training, which changes weights on the GPU.
  ///
  /// - The weights are [K,R,S,C/groups], f32 or of the stage's type, with any strides. They must
  ///   stay alive until the stream has packed them.
  /// - Nothing is copied to the host and nothing waits, except in the first call, in the first one
  ///   after set_weights() or use(), and in the first one with strides that no earlier call had.
  /// - A CUDA graph may capture it, except these three calls. Each launch of the graph packs the
  ///   current values of the weights.
  /// - Runs on other streams read the same packed weights: order them after the packing. Calls of
  ///   repack() on several streams wait for each other, except inside a CUDA graph.
  /// - The bits are those of set_weights().
  ///
  /// It may not overlap a run, set_weights() or use() on the host. Throws Error on the CPU, for a
  /// kernel that can't repack, for a wrong view, and in a capture that the rule above excludes.
  ///
  ///     plan.repack(weights, stream);  // weights that training changes on the device
  ///     plan.run({.x = x, .y = y}, stream).or_throw();
  void repack(const ConstTensorView& weights, Stream stream = {});

  /// Computes the stage. The bits of an image do not depend on n, on its position, on threads, on
  /// tuning or on the run. A run of 0 images checks its operands and succeeds.
  ///
  /// The status is one of invalid_operand, no_weights, no_workspace, moved_from, out_of_memory,
  /// device_error and internal_error; see StatusCode. After a failure nothing was written, except
  /// with device_error. On a GPU, a failure after the launch is reported by the function that waits
  /// for the stream.
  Status run(const Operands& operands, Stream stream = {}) const noexcept;

  /// The stage, normalised.
  const Stage& stage() const;
  /// The sizes that follow from the stage.
  const Shapes& shapes() const;
  /// The device that computes.
  Device device() const;
  /// The kernel's name, as explain() prints it.
  std::string kernel() const;
  /// The tile's name, as explain() prints it.
  std::string tile() const;
  /// The name of the algorithm and its order of additions, which fix the bits.
  std::string arithmetic() const;
  /// The packing of the weights; see Weights::packing.
  std::string packing() const;
  /// The number of CPU threads that the plan may use; 1 on a GPU.
  int threads() const;
  /// The bytes of the workspace of one run; 0: it needs none.
  std::size_t workspace_bytes() const;

  /// The reasons for the kernel, as text: shapes, the verdict of each kernel with all its refusals,
  /// the tile, the predicted time, and the bytes moved with and without fusion.
  std::string explain() const;
  /// explain() as JSON, for programs.
  std::string explain_json() const;

 private:
  friend Bound& bound_for_repack(Plan& plan, const ConstTensorView& weights);
  struct Impl;
  Impl& impl() const;  // throws Error if the plan was moved from
  std::unique_ptr<Impl> impl_;
};

/// Folds an inference batch-norm into weights [K,R,S,C/groups] and a bias [K], in place: w *=
/// gamma/sqrt(variance + eps), bias = (bias - mean)*gamma/sqrt(variance + eps) + beta.
///
/// All tensors are f32, contiguous and on the host; gamma, beta, mean and variance are [K]. Each
/// variance + eps must be above 0. Throws Error before anything is changed.
CONVOY_API void fold_batchnorm(const TensorView& weights, const TensorView& bias,
                               const ConstTensorView& gamma, const ConstTensorView& beta,
                               const ConstTensorView& mean, const ConstTensorView& variance,
                               float eps = 1e-5F);

/// The version of the library, for example "0.1.0".
CONVOY_API const char* version();

}  // namespace convoy
