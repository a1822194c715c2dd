// The pair family: a halo stage with max 2x2 and a 1x1 stage after it in one launch on Hopper's
// tensor cores. `pair_tile.hpp` chooses tiles; this launches one.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "cuda/sm90/pair_tile.hpp"

namespace convoy::cuda::sm90 {

/// Loads the kernel on the current device. To be called once before pair_launch; returns an empty
/// string, or what went wrong.
std::string pair_ready(const Stage& first, const HaloTile& tile);

/// Device pointers, 16-byte aligned. x [n,H,W,C], w [K,R,S,C], w2 [K2,K], y [n,P',Q',K2], each of
/// the stages' type and NHWC, with a pixel stride (elements) of at least C and K2; biases fp32 or
/// null.
struct PairRun {
  Index n = 0;  // images, at most the stages' n
  const void* x = nullptr;
  const void* w = nullptr;
  const float* bias = nullptr;
  const void* w2 = nullptr;
  const float* bias2 = nullptr;
  void* y = nullptr;
  Index x_pixel_stride = 0, y_pixel_stride = 0;
  bool overlap_previous =
      false;  // start while the stream's previous kernel drains (it is still waited for)
};

/// Enqueues one launch. No allocation, no synchronisation, capturable. Returns an empty string, or
/// what went wrong. The layout must be pair_layout(first, second, tile, device) with
/// first.x_slots > 0. The bits of y equal those of two launches of halo.
std::string pair_launch(const Stage& first, const Stage& second, const HaloTile& tile,
                        const PairLayout& layout, const PairRun& run, cudaStream_t stream) noexcept;

/// Registers, spilled bytes and shared memory of the kernel behind a tile.
cudaFuncAttributes pair_attributes(const Stage& first, const HaloTile& tile);

}  // namespace convoy::cuda::sm90
