// The depthwise family: as many groups and filters as channels. The launch.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "cuda/any/depthwise_tile.hpp"

namespace convoy::cuda {

/// Enqueues launches of one stage on one device, which is current whenever a member is called.
class DepthwiseLaunch {
 public:
  /// Loads the kernel. `overlap_previous`: from compute capability 9.0 on. Throws Error.
  DepthwiseLaunch(const Stage& stage, const DepthwiseTile& tile, bool overlap_previous);
  ~DepthwiseLaunch();
  DepthwiseLaunch(const DepthwiseLaunch&) = delete;
  DepthwiseLaunch& operator=(const DepthwiseLaunch&) = delete;

  /// Device pointers: operands as RunArgs has them, x and y on a thread's channels, pixels too; w
  /// [R,S,C] in the stage's type. Returns an empty string, or what went wrong. Summation: r, s in
  /// sequence from +0, fused multiply-add in fp32.
  std::string run(const RunArgs& args, const void* w, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<const Ready> ready_;
};

}  // namespace convoy::cuda
