// The halo family: any R x S convolution with bias, activation and max 2x2 on Hopper's tensor
// cores. `halo_tile.hpp` chooses tiles; this launches one.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "convoy/stage.hpp"
#include "cuda/sm90/halo_layout.hpp"
#include "cuda/sm90/nhwc_run.hpp"

namespace convoy::cuda::sm90 {

struct HaloParams;  // halo_params.hpp

/// A stage on one tile: its kernel loaded, and what all its launches have in common made once. A
/// launch starts while the stream's previous kernel drains: that one is waited for before x and
/// bias are read and y is written, but not before w is read.
class HaloLaunch {
 public:
  using Run = NhwcRun;  // x and y 16-byte aligned, pixels too

  /// On the current device. The layout must be halo_layout(stage, tile, device) with x_slots > 0.
  /// Throws Error.
  HaloLaunch(const Stage& stage, const HaloTile& tile, const HaloLayout& layout);
  ~HaloLaunch();

  /// Later runs read w: as halo_weights packs it, of the stage's type on the device, 16-byte
  /// aligned. Throws Error. Not during a run.
  void use(const void* w);

  /// Enqueues one launch. No allocation, no synchronisation, capturable. Returns an empty string,
  /// or what went wrong. From any thread.
  std::string run(const Run& run, cudaStream_t stream) const noexcept;

  /// What a launch of `run` is told, and its CTAs: for a kernel that does the same and more.
  std::string aim(const Run& run, HaloParams& params, int& grid) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<Ready> ready_;
};

/// Registers, spilled bytes and shared memory of the kernel behind a tile.
cudaFuncAttributes halo_attributes(const Stage& stage, const HaloTile& tile);

}  // namespace convoy::cuda::sm90
