// The few family: so few filters that all their taps together are at most 64 rows of a matrix, as
// in the last layer of a decoder. The launch.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "cuda/sm90/few_layout.hpp"
#include "cuda/sm90/nhwc_run.hpp"
#include "cuda/tensor_map.hpp"

namespace convoy::cuda::sm90 {

/// A stage: its kernel loaded, and what all its launches have in common made once. A launch starts
/// while the stream's previous kernel drains: that one is waited for before x and bias are read and
/// y is written, but not before w is read.
class FewLaunch {
 public:
  using Run = NhwcRun;  // x 16-byte aligned, pixels too

  /// On the current device. Throws Error.
  FewLaunch(const Stage& stage, const FewLayout& layout);
  ~FewLaunch();

  /// Later runs read w: [K,R,S,C] of the stage's type on the device, 16-byte aligned. Throws Error.
  /// Not during a run.
  void use(const void* w);

  /// Enqueues one launch. No allocation, no synchronisation, capturable. Returns an empty string,
  /// or what went wrong. From any thread.
  std::string run(const Run& run, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<Ready> ready_;
};

}  // namespace convoy::cuda::sm90
