// The seam to the GPU code: what the core and the planner ask of it. src/cuda/gpu.cpp answers in a
// build with CUDA, src/core/no_gpu.cpp in one without.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/error.hpp"
#include "convoy/stage.hpp"
#include "convoy/tensor.hpp"
#include "core/machine.hpp"

namespace convoy::gpu {

/// What is here, for people. Never throws for what is missing: it says so.
struct Survey {
  std::string compiled;  // the GPUs that this build has code for; empty: none
  std::string driver;    // "13.0", the CUDA version it serves; empty: there is none
  std::vector<Machine> machines;
  std::string why_none;  // where there is no machine: why, and what to do
};
Survey survey();

/// The GPU of that number. Facts are read once a process. Throws Error that says what is there.
Machine machine(int index);

/// Memory on a GPU, 256-byte aligned, zero-filled. `what` names it in the Error thrown when there
/// is no such device or not enough memory.
void* allocate(Device device, std::size_t bytes, const std::string& what);
void release(Device device, void* memory) noexcept;

/// Rows of `row_bytes`, each at its pitch. At least one side is on a GPU.
struct CopyRows {
  const void* from = nullptr;
  void* to = nullptr;
  Device from_device, to_device;
  std::size_t row_bytes = 0, rows = 1, from_pitch = 0, to_pitch = 0;
};
/// Enqueued on the stream; where one side is the host, complete on return. Throws Error.
void copy(const CopyRows& rows, Stream stream);

/// Waits for all work of the stream. Throws Error with what went wrong in it.
void synchronize(Device device, Stream stream);

/// Seconds that the GPU spent on what `enqueue` put on the stream, in all. Throws Error.
double time(Device device, Stream stream, const std::function<void()>& enqueue);

/// Two stages in one launch, the tensor between them never in memory. The bits are those of two
/// runs of the kernel `halo`.
class Pair {
 public:
  virtual ~Pair() = default;
  /// fp32 [K,R,S,C] of the first stage and [K2,K] of the second, on the host.
  virtual void set_weights(const float* first, const float* second) = 0;
  /// Dense NHWC tensors on the GPU, biases fp32 or null. Enqueued on the stream.
  virtual Status run(Index n, const void* x, const float* bias, const float* bias2, void* y,
                     Stream stream) const noexcept = 0;
};
struct PairVerdict {
  std::vector<std::string> refusals;  // every reason why not; empty: the two can run in one launch
  std::string tile;
  double seconds = 0;  // predicted
};
PairVerdict judge_pair(const Stage& first, const Stage& second, const Machine& machine);
/// Of two stages that judge_pair does not refuse, with the tile of that name; empty: the best
/// predicted one. Throws Error.
std::unique_ptr<Pair> prepare_pair(const Stage& first, const Stage& second, const Machine& machine,
                                   std::string_view tile = {});

}  // namespace convoy::gpu
