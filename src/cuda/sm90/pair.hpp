// The pair family: a halo stage with max 2x2 and a 1x1 stage after it in one launch on Hopper's
// tensor cores. `pair_tile.hpp` chooses tiles; this launches one.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "cuda/sm90/pair_tile.hpp"

namespace convoy::cuda::sm90 {

/// Device pointers, 16-byte aligned. x [n,H,W,C], y [n,P',Q',K2], each of the stages' type, NHWC
/// and dense; biases fp32 or null.
struct PairRun {
  Index n = 0;  // images, at most the stages' n
  const void* x = nullptr;
  const float* bias = nullptr;
  const float* bias2 = nullptr;
  void* y = nullptr;
};

/// Two stages on one tile: their kernel loaded, and what all its launches have in common made once.
/// A launch starts while the stream's previous kernel drains: that one is waited for before x and
/// biases are read and y is written, but not before weights are read.
class PairLaunch {
 public:
  /// On the current device. The layout must be pair_layout(first, second, tile, device) with
  /// first.x_slots > 0. Throws Error.
  PairLaunch(const Stage& first, const Stage& second, const HaloTile& tile,
             const PairLayout& layout);
  ~PairLaunch();

  /// Later runs read w and w2: as halo_weights packs them, of the stages' type on the device,
  /// 16-byte aligned. Throws Error. Not during a run.
  void use(const void* w, const void* w2);

  /// Enqueues one launch. No allocation, no synchronisation, capturable. Returns an empty string,
  /// or what went wrong. The bits of y equal those of two launches of halo. From any thread.
  std::string run(const PairRun& run, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<Ready> ready_;
};

/// Registers, spilled bytes and shared memory of the kernel behind a tile.
cudaFuncAttributes pair_attributes(const Stage& first, const HaloTile& tile);

}  // namespace convoy::cuda::sm90
