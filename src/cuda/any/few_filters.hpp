// The few_filters family: up to eight filters over many channels in f32. The launch.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "cuda/any/few_filters_layout.hpp"

namespace convoy::cuda {

/// Enqueues launches of one stage on one device, which is current whenever a member is called.
class FewFiltersLaunch {
 public:
  /// Loads the kernel. `overlap_previous`: from compute capability 9.0 on. Throws Error.
  FewFiltersLaunch(const Stage& stage, int threads, bool overlap_previous);
  ~FewFiltersLaunch();
  FewFiltersLaunch(const FewFiltersLaunch&) = delete;
  FewFiltersLaunch& operator=(const FewFiltersLaunch&) = delete;

  /// Device pointers: operands as RunArgs has them, x on 16 bytes where the layout's vector is 4,
  /// pixels too; w as few_filters_weights has them. Returns an empty string, or what went wrong.
  std::string run(const RunArgs& args, const void* w, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<const Ready> ready_;
};

}  // namespace convoy::cuda
