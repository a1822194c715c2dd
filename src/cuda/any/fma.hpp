// The fma family: an implicit GEMM of fused multiply-adds on the CUDA cores, for what Tensor Cores
// do not take. Host side: what fits, tiles, sizes, packed weights, the launch.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "cuda/any/fma_index.hpp"

namespace convoy::cuda {

constexpr int fma_threads = 128;  // of a CTA

/// A CTA's rows (pixels) by filters, and those of a thread, in fours.
struct FmaTile {
  int m = 0, n = 0, thread_m = 0, thread_n = 0;
  int ctas = 3;  // of a multiprocessor, at least
  constexpr bool operator==(const FmaTile&) const = default;
  constexpr bool whole() const { return m / thread_m * (n / thread_n) == fma_threads; }
};
constexpr FmaTile fma_large{128, 64, 8, 8}, fma_medium{128, 32, 8, 4}, fma_small{64, 64, 4, 8},
    fma_narrow{256, 16, 8, 4};
static_assert(fma_large.whole() && fma_medium.whole() && fma_small.whole() && fma_narrow.whole());

/// A stage's numbers, of `stage.n` images.
struct FmaSizes {
  FmaRows rows;
  FmaTaps taps;
  int r = 1, steps = 0;
  int group_c = 0, group_k = 0;  // channels and filters of a group
  int padded_k = 0;              // filters of a group in packed weights: whole fours
  int m_tiles = 0, n_tiles = 0;  // n_tiles: of all groups
};

/// Every reason why the family can't run a legal stage; empty: it can.
std::vector<std::string> fma_refusals(const Stage& stage);
std::vector<FmaTile> fma_tiles(const Stage& stage);
FmaSizes fma_sizes(const Stage& stage, const FmaTile& tile);
/// [K,R,S,C/groups] -> [group][product, whole steps][filter, whole fours], the rest 0.
std::vector<float> fma_weights(const Stage& stage, const float* w);
/// Predicted seconds of a run, and the share of its multiply-adds that is thrown away.
double fma_seconds(const Stage& stage, const FmaTile& tile, const Machine& machine);
double fma_waste(const Stage& stage, const FmaTile& tile);

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
