// The general family: every legal stage on any GPU from compute capability 7.5, plain and right.
// The fallback where no fast family fits, and the GPU's own cross-check of those that do.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "core/kernel.hpp"

namespace convoy::cuda {

/// A stage: its kernels loaded, and what all its launches have in common made once. Summation: r,
/// s, c in sequence, fused multiply-add in fp32.
class GeneralLaunch {
 public:
  /// On the current device. `overlap_previous`: each launch starts while the stream's previous
  /// kernel drains, which takes compute capability 9.0. Throws Error.
  GeneralLaunch(const Stage& stage, bool overlap_previous);
  ~GeneralLaunch();

  /// Device pointers: operands as RunArgs has them (workspace and threads unused); membranes may be
  /// updated in place; w fp32 [K,R,S,C/groups], already rounded to the type that the stage computes
  /// with. Enqueues one or two launches. No allocation, no synchronisation, capturable. Returns an
  /// empty string, or what went wrong. From any thread.
  std::string run(const RunArgs& args, const void* w, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<const Ready> ready_;
};

}  // namespace convoy::cuda
