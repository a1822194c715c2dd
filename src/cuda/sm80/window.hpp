// The window family's launches, as plain functions of device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "core/kernel.hpp"
#include "cuda/sm80/window_tile.hpp"

namespace convoy::cuda::sm80 {

/// Enqueues launches of one stage in one tile on one device, which is current whenever a member is
/// called.
class WindowLaunch {
 public:
  /// Loads the tile's kernel and the one for any alignment. Throws Error.
  WindowLaunch(const Stage& stage, const WindowTile& tile, const Machine& machine);
  ~WindowLaunch();
  WindowLaunch(const WindowLaunch&) = delete;
  WindowLaunch& operator=(const WindowLaunch&) = delete;

  /// Device pointers: operands as RunArgs has them, w as window_weights lays it out, on 16 bytes.
  /// Returns an empty string, or what went wrong. Summation: 64 bytes of channels, tap, 32 bytes of
  /// channels, in the Tensor Cores' fp32; of f32, or for it, each part by itself, added in
  /// fp32.
  std::string run(const RunArgs& args, const void* w, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<const Ready> ready_;
};

}  // namespace convoy::cuda::sm80
