// The fma family: an implicit GEMM of fused multiply-adds on the CUDA cores, for what Tensor Cores
// do not take. The launch.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "cuda/any/fma_tile.hpp"

namespace convoy::cuda {

/// Enqueues launches of one stage on one device, which is current whenever a member is called.
class FmaLaunch {
 public:
  /// Loads the kernel. `overlap_previous`: from compute capability 9.0 on. Throws Error.
  FmaLaunch(const Stage& stage, const FmaTile& tile, bool overlap_previous);
  ~FmaLaunch();
  FmaLaunch(const FmaLaunch&) = delete;
  FmaLaunch& operator=(const FmaLaunch&) = delete;

  /// Device pointers: operands as RunArgs has them, any strides; w as fma_weights lays it out.
  /// Returns an empty string, or what went wrong. Summation: r, s, c in sequence from +0, fused
  /// multiply-add in fp32.
  std::string run(const RunArgs& args, const void* w, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<const Ready> ready_;
};

}  // namespace convoy::cuda
