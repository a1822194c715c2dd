// The ladder: a convolution on Tensor Cores by WMMA, optimised step by step. Each rung is a kernel
// that adds one thing to the one below; docs/learn/ladder.md tells the story, `convoy ladder` times
// it. "The document" in the rungs is the written description that they follow, which a user handed
// to the project. It is not public.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernel.hpp"
#include "cuda/limits.hpp"

namespace convoy::cuda::teaching {

/// From the bottom to the top. `half` is the last with sums in fp16, `fma` without Tensor Cores.
enum class LadderRung {
  scalar,
  wmma,
  implicit_gemm,
  shared,
  buffered,
  vector,
  masks,
  registers,
  fused,
  bounds,
  half,
  fma
};
/// What is taken away from `bounds`: its tiles.
enum class LadderWithout {
  nothing,
  implicit_gemm,
  shared,
  buffering,
  vectors,
  masks,
  registers,
  fusing,
  bounds
};

/// The tiles of a stage, by its channels and filters.
enum class LadderSize { naive, medium, large };
/// Of fewer than 16 channels or filters a square of WMMA is mostly zeros: rung 0 runs, whichever
/// was asked for. Large tiles of fewer than 64 are.
constexpr LadderSize ladder_size(Index c, Index k) {
  if (c >= 64 && k >= 64) return LadderSize::large;
  if (c >= 16 && k >= 16) return LadderSize::medium;
  return LadderSize::naive;
}
/// The rung that runs when `rung` is asked for: rung 0 of naive stages, and where eight channels
/// are no unit of memory (C % 8) the last rung that loads them one by one.
LadderRung ladder_rung(LadderRung rung, const Stage& stage);

inline constexpr Serves served_by_ladder{
    .types = Types(DType::f16, DType::f16),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = false,
    .bias = true,
    .norm = false,
    .acts = {Activation::Kind::none, Activation::Kind::relu},
    .soft = false,
    .hold = false,
    .pools = PoolForm::none,
    .pools_first = false,
    .keep = every_output,
};
/// Adds each reason why the rung can't run a legal stage, beyond what the ladder does not serve.
void refuse_ladder(LadderRung rung, const Stage& stage, Reasons& why);
/// What can be taken away from the rung for this stage, `nothing` first.
std::vector<LadderWithout> ladder_withouts(LadderRung rung, const Stage& stage);
std::string_view to_text(LadderWithout without);

/// C is packed in units of so many channels, and K of so many filters, with zeros behind them: no
/// kernel asks whether a filter's value exists.
/// Rows, products and squares are counted with 32 bits.
inline constexpr Limits ladder_limits{.rows = Index{1} << 30};
inline constexpr int ladder_channels = 32, ladder_filters = 128;

/// [K,R,S,C] with zeros up to multiples of ladder_filters filters and ladder_channels channels.
std::vector<float> ladder_weights(const Stage& stage, const float* w);

/// Enqueues a stage's launches on one device, which is current whenever a member is called.
class LadderLaunch {
 public:
  /// Loads the kernels. Throws Error.
  LadderLaunch(const Stage& stage, LadderRung rung, LadderWithout without);
  ~LadderLaunch();
  LadderLaunch(const LadderLaunch&) = delete;
  LadderLaunch& operator=(const LadderLaunch&) = delete;

  /// Of im2col's matrix; 0 for kernels that have none.
  std::size_t workspace_bytes() const;
  /// Whether x must lie on 16 bytes, pixels too.
  bool wide_x() const;
  std::vector<GpuResources> resources() const;
  /// Device pointers: operands as RunArgs has them; w: ladder_weights in f16. Returns an empty
  /// string, or what went wrong.
  std::string run(const RunArgs& args, const void* w, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<const Ready> ready_;
};

}  // namespace convoy::cuda::teaching
