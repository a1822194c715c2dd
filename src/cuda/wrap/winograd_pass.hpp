// F(4x4, 3x3)'s passes over memory: images to tiles' transforms, and sums of products to outputs.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/kernel.hpp"
#include "cuda/wrap/winograd_tile.hpp"

namespace convoy::cuda {

/// v and m: [tile][36][C] and [tile][36][K], fp32 on 16 bytes; of the images of this run.
struct WinogradRun {
  RunArgs args;  // x, y, bias and n, as of a run of these images; x and y of fp32
  float* v = nullptr;
  float* m = nullptr;
  const float* w = nullptr;  // [K,3,3,C]: tiles whose sums are not finite are made again from it
};

/// Loads the kernels on the current device. To be called once; returns an empty string, or what
/// went wrong.
std::string winograd_ready();

/// Each enqueues one launch. No allocation, no synchronisation, capturable. `overlap_previous`:
/// from compute capability 9.0 on. Returns an empty string, or what went wrong.
std::string launch_winograd_input(const Stage& stage, const WinogradRun& run, bool overlap_previous,
                                  cudaStream_t stream) noexcept;
std::string launch_winograd_output(const Stage& stage, const WinogradRun& run,
                                   bool overlap_previous, cudaStream_t stream) noexcept;

}  // namespace convoy::cuda
