// Kernel `cutlass_pooled`: a convolution + bias + ReLU + max-pool 2x2 on CUTLASS 2.x, whose output
// iterator pools with atomicMax in an fp32 buffer. By name only: it is there to be compared with
// kernels that pool in registers (docs/lab/cutlass-pooled.md).
//
// A file a step: cutlass_pooled_output.cuh (1, output iterator), _epilogue.cuh (2), _default.cuh
// (3, assembly), _conv.cuh (4, kernel), _device.cuh (5, what a launch is); _round.cu the conversion
// to f16. One instance a translation unit: one takes nvcc ten seconds.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "cuda/device.hpp"
#include "cuda/limits.hpp"

namespace convoy::cuda::teaching {

/// Rows of the implicit GEMM and filters that a CTA computes.
struct CutlassPooledTile {
  int rows, filters;
  bool operator==(const CutlassPooledTile&) const = default;
  std::string name() const { return std::to_string(rows) + "x" + std::to_string(filters); }
};
/// What CUTLASS counts in 32 bits: elements of each tensor. `cutlass_pooled_fits` asks of runs too.
inline constexpr Index cutlass_pooled_elements = Index{1} << 30;
inline constexpr Limits cutlass_pooled_limits{.elements = cutlass_pooled_elements};
inline constexpr CutlassPooledTile cutlass_pooled_tiles[] = {{128, 64}, {128, 128}};
constexpr int cutlass_pooled_depth = 32;  // channels of a tap in one turn of the main loop
constexpr int cutlass_pooled_stages = 3;  // turns whose operands are in shared memory or on the way
constexpr int cutlass_pooled_threads = 128;

/// Dynamic shared memory of a CTA: the main loop's operands, where the epilogue lies too.
constexpr int cutlass_pooled_shared_bytes(const CutlassPooledTile& tile) {
  return 2 * (tile.rows + tile.filters) * cutlass_pooled_depth * cutlass_pooled_stages;
}

/// Whether this build has CUTLASS; else why not, and what to do.
std::string cutlass_pooled_missing();

/// ReLU alone: the bits of floats of 0 or more are in their order. With even P and Q a pool with
/// ceil has no further windows.
inline constexpr Serves served_by_cutlass_pooled{
    .types = Types(DType::f16, DType::f16),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = false,
    .bias = true,
    .norm = false,
    .acts = Activation::Kind::relu,
    .soft = false,
    .hold = false,
    .pools = {PoolForm::max2, PoolForm::max2ceil_inside, PoolForm::max2ceil_beyond},
    .pools_first = false,
    .keep = nothing,
};
/// can_implement: adds each reason why it does not take a stage, beyond what it does not serve.
void refuse_cutlass_pooled(const Stage& stage, const DeviceFacts& device, Reasons& why);
/// The part of it that depends on x: whether 32 bits count its elements, pixels so many apart.
bool cutlass_pooled_fits(const Stage& stage, Index x_pixel);

/// Device pointers: x [n,H,W,C] and y [n,P',Q',K] f16, their pixels so many elements apart, both
/// 16-byte aligned, as w [K,R,S,C]; bias fp32 or null; pooled: cutlass_pooled_bytes.
struct CutlassPooledRun {
  Index n = 0;
  const void* x = nullptr;
  Index x_pixel = 0;
  const void* w = nullptr;
  const float* bias = nullptr;
  float* pooled = nullptr;
  void* y = nullptr;
  Index y_pixel = 0;
};

/// Bytes of the fp32 buffer [n,P',Q',K] for the stage's n.
std::size_t cutlass_pooled_bytes(const Stage& stage);

/// A stage on one tile, its kernels loaded.
class CutlassPooledLaunch {
 public:
  virtual ~CutlassPooledLaunch() = default;
  /// Enqueues memset, convolution and conversion. No allocation, no synchronisation, capturable.
  /// Returns an empty string, or what went wrong. From any thread.
  virtual std::string run(const CutlassPooledRun& run, cudaStream_t stream) const noexcept = 0;
};

/// On the current device. Throws Error.
std::unique_ptr<CutlassPooledLaunch> cutlass_pooled_128x64(const Stage& stage);
std::unique_ptr<CutlassPooledLaunch> cutlass_pooled_128x128(const Stage& stage);

/// The conversion: `pixels` of k channels, k a multiple of 8, to f16 pixels so many elements apart.
std::string cutlass_pooled_round(const float* pooled, void* y, Index pixels, Index k, Index y_pixel,
                                 cudaStream_t stream) noexcept;
/// Loads it on the current device; an empty string, or what went wrong.
std::string cutlass_pooled_round_ready();

}  // namespace convoy::cuda::teaching
