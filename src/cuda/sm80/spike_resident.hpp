// Kernel `spike_resident`: a spiking network from u8 images to labels in one launch, on Tensor
// Cores from 8.0 on. `spike_resident_plan.hpp` lays it out, this launches it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "cuda/sm80/spike_resident_params.hpp"

namespace convoy::cuda::sm80 {

/// The kernels, loaded once on the current device.
class ResidentLaunch {
 public:
  /// `overlap_previous`: each launch starts while the stream's previous kernel drains, from 9.0 on.
  /// `warpgroups`: layouts of warpgroups may come, on 9.0. Throws Error.
  ResidentLaunch(bool overlap_previous, bool warpgroups);
  ~ResidentLaunch();

  /// Enqueues one launch of at most `grid` CTAs, where they may have any number of images. No
  /// allocation, no synchronisation, capturable. Returns an empty string, or what went wrong. From
  /// any thread.
  std::string run(const ResidentParams& params, int grid, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<Ready> ready_;
};

}  // namespace convoy::cuda::sm80
