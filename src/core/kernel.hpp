// What a kernel is: the interface between the planner and every family, CPU and GPU alike.
//
// A kernel runs a chain of stages (core/chain.hpp). Most run chains of one and derive from
// `StageKernel`, whose functions take a stage. Each is one class with one instance, which a
// function of its name returns; src/plan/kernel_table.cpp lists those functions, and other
// libraries add theirs, as src/teaching does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/plan.hpp"
#include "convoy/stage.hpp"
#include "core/chain.hpp"
#include "core/machine.hpp"
#include "core/serves.hpp"
#include "core/threads.hpp"
#include "core/trace.hpp"

namespace convoy {

/// How to walk a tensor, in elements. c is 1 for NHWC. t is 0 where the input is held.
struct Strides {
  Index t = 0, n = 0, h = 0, w = 0, c = 1;
};

/// Of the dense x and y of n images of a stage, in its layout.
Strides dense_x(const Stage& stage, Index n);
Strides dense_y(const Stage& stage, Index n);

/// One configuration of a family. Its numbers mean what the family says; the name is what
/// `explain` prints, `--tile` accepts and the tuning cache stores. Tiles never change the bits.
struct Tile {
  std::string name;
  int a = 0, b = 0, c = 0, d = 0;
  bool operator==(const Tile&) const = default;
};

/// What the cost model predicts for one run of the whole chain.
struct Cost {
  double seconds = 0;
  double flops = 0;  // operations done, waste included
  double waste = 0;  // share of them whose result is thrown away (tile and channel padding)
  double bytes = 0;  // moved to and from memory: x, w and y once each, and any spill of blocks
};

/// What a stage reads and writes beside its x and y. Dense tensors, null where there is none.
struct StageArgs {
  const float* bias = nullptr;         // [K]
  const float* norm_scale = nullptr;   // [C]
  const float* norm_shift = nullptr;   // [C]
  void* pre = nullptr;                 // [T,N,P,Q,K]
  void* act = nullptr;                 // [T,N,P,Q,K]
  std::int32_t* idx = nullptr;         // shaped and laid out as y
  const float* membrane_in = nullptr;  // [N,P,Q,K]; null: zero
  float* membrane_out = nullptr;       // [N,P,Q,K]; null: not wanted
  /// Of a stage that is not the chain's last: its y in f32, [T,N,P',Q',K]. A chain keeps it where
  /// it is asked for, for checks; null: not wanted.
  float* inner_y = nullptr;
};

/// One run, checked by the plan: pointers are aligned to their element, shapes and types are the
/// stages', n ≤ stage.n. It begins with the arguments of the first stage.
struct RunArgs : StageArgs {
  Index n = 0;
  const void* x = nullptr;  // of the first stage
  Strides x_stride;
  /// x lies dense in page-locked memory of the host and holds its images whatever the stream still
  /// has to do: a GPU's kernel may take them along with its launch.
  bool x_on_host = false;
  void* y = nullptr;  // of the last stage
  Strides y_stride;
  std::span<const StageArgs> later;  // of the stages behind the first
  std::int32_t* labels = nullptr;    // of a mean: the index of its largest value, [N]
  double* seconds = nullptr;         // of a chain on the CPU: adds each stage's time over threads
  std::byte* workspace = nullptr;    // 64-byte aligned, workspace_bytes()
  Threads* threads = nullptr;        // CPU
  void* stream = nullptr;            // GPU
};

/// The trained parameters of a stage, in host memory. They are constant for the plan.
struct Parameters {
  const float* w = nullptr;  // contiguous f32 [K,R,S,C/groups], already flipped if asked for
  /// Of chains that fold it into what they pack (`KernelFacts::folds`); else an operand of a run.
  const float* bias = nullptr;
  const float* values = nullptr;  // likewise, of u8 images: x' of each pixel value, [C][256]
};

/// Memory that holds packed weights, one value after another. `Prepared::laid_out` tells which
/// weight each value is.
struct PackedBlock {
  void* data = nullptr;  // on the kernel's device
  Index count = 0;
  DType held = DType::f32;     // the type of the memory
  DType rounded = DType::f32;  // the type that weights are rounded to
  /// The block holds values of the filters' Winograd transforms, [36 K, C] (math::winograd4),
  /// instead of values of w.
  bool of_transforms = false;
};

/// Weights in the layout that a kernel wants, on its device. Plans that agree on the layout share
/// them: they are complete when `pack` returns and never change, so that a GPU's kernel may read
/// them before the work that its stream holds already is done. (Those of
/// plan/repack.hpp do change: gpu::finish_fills keeps the order.)
class PackedWeights {
 public:
  virtual ~PackedWeights() = default;
  /// The blocks that the weights consist of, if a GPU can fill them by itself; else none.
  virtual std::vector<PackedBlock> blocks() const { return {}; }
};

/// What one of a run's kernels takes of a GPU.
struct GpuResources {
  std::string kernel;
  int registers = 0, spilled_bytes = 0;  // of a thread
  int threads = 0, shared_bytes = 0;     // of a CTA
  int ctas = 0;                          // that a multiprocessor holds at once
  double occupancy = 0;                  // their threads, as a share of those that it has room for
};

/// A kernel bound to a chain and a tile. Immutable while running.
class Prepared {
 public:
  virtual ~Prepared() = default;
  /// Names the layout that `pack` makes: whatever of stage and tile decides it. Two plans on one
  /// device whose kernels and packings are equal may share weights.
  virtual std::string packing() const = 0;
  /// One element a stage. Throws Error where the kernel does not serve these parameters.
  virtual std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const = 0;
  /// What a `pack` of an equal packing made; runs read it from then on.
  virtual void use(std::shared_ptr<const PackedWeights> weights) = 0;
  /// The values of a block of what `pack` makes, before they are rounded: each is one of `from`, or
  /// 0. from: w [K,R,S,C/groups], or the transforms that the block holds values of. Only of kernels
  /// whose packed weights have blocks.
  virtual std::vector<float> laid_out(std::size_t block, const float* from) const;
  virtual std::size_t workspace_bytes() const { return 0; }
  /// Of the kernels that a run launches on a GPU, the one that multiplies first; empty: not told.
  virtual std::vector<GpuResources> gpu_resources() const { return {}; }
  /// No allocation, no exception. Re-entrant as long as workspaces differ.
  virtual Status run(const RunArgs& args) const noexcept = 0;

  /// Why `trace` can't be called, and what to do; empty: it can. On the CPU it is `Threads` that
  /// logs, whatever the kernel.
  virtual std::string why_no_trace() const;
  /// Calls `warm_up` twice, which enqueues runs, and enqueues two runs behind them, whose kernel
  /// takes time stamps of itself; waits, and tells of the second, and how long the second warm-up
  /// took. It gives the bits of `run`. Throws Error.
  virtual RunTrace trace(std::span<const RunArgs, 2> runs,
                         const std::function<void()>& warm_up) const;
};

/// A kernel that is there to be learned from: it adds one thing to the rung before it in the table.
struct Rung {
  std::string_view adds;  // "shared-memory tiles"
  double claimed = 0;     // time without it / time with it, as its document has it; 0: not said
  /// All that the ladder has, but for this one thing: a kernel and its tile; empty: there is none.
  std::string_view without_kernel = {}, without_tile = {};
};

/// What is true of a kernel whatever the chain. A kernel that runs another inside hands on that
/// one's facts, says what it serves itself, and changes what else differs.
struct KernelFacts {
  std::string_view name;        // of its file, in `explain`, in profilers
  std::string_view arithmetic;  // kernels that share it give equal bits
  DeviceKind device = DeviceKind::cpu;
  Serves serves;                          // everything else is refused
  std::optional<ServesChain> chain = {};  // what it serves of chains; empty: it runs one stage
  /// Exact on small integers: allowed in strict mode.
  bool exact = false;
  /// False: a NaN or an infinity in x also makes outputs NaN whose filter ends up to three pixels
  /// to its left, or begins next to its right.
  bool contains_non_finite = true;
  /// Never chosen, only asked for: `--kernel NAME`.
  bool by_name_only = false;
  /// The largest error allowed on real numbers, as a multiple of that of plain fp32 sums.
  double error_bound = 2;
  /// What a sum is rounded to after each step, relative to it: half a unit in the last place.
  double sum_roundoff = 0x1p-24;
  /// Bias, and the values of u8 pixels, are folded into the packed weights (`Parameters`).
  bool folds = false;
  /// n of the stages is no limit: a run may have more images.
  bool any_n = false;
  /// It gives what lies between its stages where a run asks for it (`StageArgs::inner_y`), and the
  /// time of each stage (`RunArgs::seconds`).
  bool keeps_inner = false;
  /// The one that a GPU's kernel is compiled for, as in Machine; 0: any.
  int compute_capability = 0;
  /// The kernel is neither considered nor listed by `explain` for shorter chains.
  std::size_t least_stages = 1;
  const Rung* rung = nullptr;

  /// Whether a GPU runs what was compiled for that one.
  bool compiled_for(const Machine& machine) const {
    return compute_capability == 0 || compute_capability / 10 == machine.compute_capability / 10;
  }
  /// The same under another name and with another declaration: the facts of a kernel that runs this
  /// one inside.
  KernelFacts called(std::string_view other, const Serves& others) const {
    KernelFacts facts = *this;
    facts.name = other;
    facts.serves = others;
    return facts;
  }
};

class Kernel {
 public:
  const KernelFacts& facts() const { return facts_; }
  std::string_view name() const { return facts_.name; }
  std::string_view arithmetic() const { return facts_.arithmetic; }
  bool exact() const { return facts_.exact; }
  DeviceKind device() const { return facts_.device; }

  /// Every reason why the kernel can't run this legal chain here; empty: it fits. First come those
  /// of what the family does not serve, then those of sizes and the machine.
  Reasons refusals(const Chain& chain, const Machine& machine) const;
  /// Tiles worth considering for a chain that fits, at least one, in a fixed order.
  std::vector<Tile> tiles(const Chain& chain, const Machine& machine) const {
    return chain_tiles(chain, machine);
  }
  Cost cost(const Chain& chain, const Tile& tile, const Machine& machine) const {
    return chain_cost(chain, tile, machine);
  }
  std::unique_ptr<Prepared> prepare(const Chain& chain, const Tile& tile,
                                    const Machine& machine) const {
    return chain_prepare(chain, tile, machine);
  }

 protected:
  explicit Kernel(const KernelFacts& facts) : facts_(facts) {}
  // Kernels are statics that nobody deletes. Without a virtual destructor they need none at all,
  // and stay whole for plans that are made while the program ends.
  ~Kernel() = default;

  /// Adds the reasons that lie in sizes, in the machine, or in how the stages of a chain follow
  /// each other. `why` holds what is not served: while it is empty, all is as the family declares
  /// it.
  virtual void refuse_chain(const Chain& chain, const Machine& machine, Reasons& why) const = 0;
  virtual std::vector<Tile> chain_tiles(const Chain& chain, const Machine& machine) const = 0;
  virtual Cost chain_cost(const Chain& chain, const Tile& tile, const Machine& machine) const = 0;
  virtual std::unique_ptr<Prepared> chain_prepare(const Chain& chain, const Tile& tile,
                                                  const Machine& machine) const = 0;

 private:
  KernelFacts facts_;
};

/// A kernel that runs one stage.
class StageKernel : public Kernel {
 public:
  virtual std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const = 0;
  virtual Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const = 0;
  virtual std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                            const Machine& machine) const = 0;

 protected:
  using Kernel::Kernel;
  ~StageKernel() = default;
  /// As Kernel::refuse_chain.
  virtual void refuse(const Stage& stage, const Machine& machine, Reasons& why) const = 0;

 private:
  void refuse_chain(const Chain& chain, const Machine& m, Reasons& why) const final {
    refuse(chain.front(), m, why);
  }
  std::vector<Tile> chain_tiles(const Chain& chain, const Machine& m) const final {
    return tiles(chain.front(), m);
  }
  Cost chain_cost(const Chain& chain, const Tile& tile, const Machine& m) const final {
    return cost(chain.front(), tile, m);
  }
  std::unique_ptr<Prepared> chain_prepare(const Chain& chain, const Tile& tile,
                                          const Machine& m) const final {
    return prepare(chain.front(), tile, m);
  }
};

/// Packs the weights of a chain of one and uses them.
inline void set_weights(Prepared& prepared, const float* w) {
  const Parameters parameters{.w = w};
  prepared.use(prepared.pack({&parameters, 1}));
}

}  // namespace convoy
