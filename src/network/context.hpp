// What one run of a program at a time needs: memory between the steps, workspaces, and on a GPU
// what runs from and to the host keep.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/gpu_async.hpp"
#include "core/process.hpp"
#include "network/host_path.hpp"
#include "network/program.hpp"

namespace convoy::network {

/// What `profile` asks a run for.
struct Times {
  double* seconds = nullptr;                // of each layer, summed over threads
  std::vector<LayerSpan>* spans = nullptr;  // null: not wanted
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

/// One pass through the steps: at most Program::at_once images, or any number of a program that
/// takes any. Memory is dense and on the program's device.
struct Pass {
  Index n = 0;
  std::span<const void* const> inputs = {};  // of the graph's inputs, in order
  /// The first input holds what the conversion would give: it is left out.
  bool converted = false;
  /// Of the graph's outputs, in order and of their types; null: not wanted. May be shorter.
  std::span<void* const> outputs = {};
  /// Of the first output, each may be null: its values as f32, and the index of the largest of each
  /// image.
  float* logits = nullptr;
  std::int32_t* labels = nullptr;
  /// The first input lies in page-locked memory, all there: see RunArgs::x_on_host.
  bool x_on_host = false;
  Times* times = nullptr;
  Stream stream{};
};

/// Memory of n images of a value.
struct Located {
  void* data = nullptr;
  Index pitch = 0;  // elements from pixel to pixel
};

class Context {
 public:
  explicit Context(const Program& program);

  /// Runs all steps. The first pass of more images than before allocates. Throws Error where it
  /// can't.
  Status run(const Pass& pass);
  /// Takes the memory of a pass of n images. Throws Error.
  void reserve(Index n);

  /// Where the value lies in the pass that ran last.
  Located where(graph::ValueId id) const;

  const Program& program() const { return program_; }
  /// Made by the first run that needs it; of a GPU.
  HostPath& host_path();
  /// Memory on the program's device of at least so many bytes, apart from the steps'; what was in
  /// it is lost when it grows.
  std::byte* scratch(Index bytes);

  /// As scratch(), for the outputs of a run that go to the host.
  std::byte* results(Index bytes);

  /// The workspace of that step is the one of run_kernel from now on.
  void use_workspace(std::size_t step);
  /// One step on given memory. inner: where the f32 output of each layer but the last goes; may be
  /// null.
  Status run_kernel(const KernelStep& step, const Pass& pass, const Located& x, const Located& y,
                    float* const* inner);
  /// n images' channels of one value to others.
  Status copy(const CopyStep& step, Index n, const Located& from, const Located& to, Stream stream);
  Status convert(const ConvertStep& step, const Pass& pass, const void* x, void* y);

 private:
  Status run_step(const Step& step, std::size_t number, const Pass& pass);
  Status run_to_the_end(const KernelStep& step, const Pass& pass);
  Status mean(const MeanStep& step, const Pass& pass);
  Status give_outputs(const Pass& pass);
  Status mean_and_labels(graph::ValueId x, Index steps, float* mean, std::int32_t* labels,
                         const Pass& pass);
  /// Waits for the stream, and adds what layers took since `begin`.
  void add_since(std::chrono::steady_clock::time_point begin, std::size_t first, std::size_t count,
                 bool adds_seconds, const Pass& pass);

  std::byte* arena_memory() const { return static_cast<std::byte*>(memory_at_); }

  const Program& program_;
  Index capacity_ = 0;  // images
  Program::Arena arena_;
  Tensor memory_, scratch_, results_;
  void* memory_at_ = nullptr;       // where memory_ lies
  std::vector<void*> given_;        // of each buffer in this pass; null: it is in the arena
  std::vector<StageArgs> later_;    // of a step: those of the layers behind the first
  std::byte* workspace_ = nullptr;  // of the step that runs
  bool has_logits_ = false;         // a step of this pass writes logits and labels
  std::unique_ptr<HostPath> host_path_;
};

/// The contexts of a network: a run takes one that nobody uses, or a new one.
class Contexts {
 public:
  static constexpr std::size_t most = 64;

  explicit Contexts(const Program& program) : program_(program) {}
  ~Contexts();
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;

 private:
  struct Owned {
    explicit Owned(const Program& program) : context(program) {}
    Context context;
    Claim claim;
    // On a GPU: whose work may still use it.
    gpu::StreamFacts by;
    bool bound = false;
  };

 public:
  /// A context while this lives.
  class Taken {
   public:
    Taken() = default;
    Taken(Taken&& other) noexcept : owned_(std::exchange(other.owned_, nullptr)) {}
    Taken& operator=(Taken&&) = delete;
    ~Taken() {
      if (owned_) owned_->claim.give();
    }
    explicit operator bool() const { return owned_ != nullptr; }
    Context* operator->() const { return &owned_->context; }
    Context& operator*() const { return owned_->context; }
    /// All work that uses it is done: any stream may have it next.
    void finished() { owned_->bound = false; }

   private:
    friend class Contexts;
    explicit Taken(Owned* owned) : owned_(owned) {}
    Owned* owned_ = nullptr;
  };

  /// On a GPU runs on one stream share a context, because they follow each other; a capture keeps
  /// its own. Empty: `most` are in use. Throws Error where there is no memory.
  Taken take(Stream stream);

 private:
  /// The first that `fits` and nobody holds, or a new one.
  template <class Fits>
  Taken find(const Fits& fits, bool make);
  Taken bound_to(const gpu::StreamFacts& by);

  const Program& program_;
  // Without a lock on the CPU: a forked child may find one taken by a thread that is not there.
  std::array<std::atomic<Owned*>, most> all_{};
  std::mutex mutex_;  // of `by` and `bound`
};

}  // namespace convoy::network
