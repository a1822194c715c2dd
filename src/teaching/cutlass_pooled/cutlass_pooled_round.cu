// The last step of `cutlass_pooled`: its fp32 buffer to f16. A thread rounds eight channels.
#include <algorithm>
#include <limits>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/types.cuh"
#include "teaching/cutlass_pooled/cutlass_pooled.hpp"

namespace convoy::cuda::teaching {
namespace {

constexpr int threads = 256, lanes = 8;

__global__ void __launch_bounds__(threads)
    cutlass_pooled_round_kernel(const float4* from, __half* to, unsigned pieces,
                                unsigned pieces_a_pixel, Index to_pixel) {
  const unsigned i = blockIdx.x * threads + threadIdx.x;
  if (i >= pieces) return;
  const float4 a = from[2 * static_cast<std::size_t>(i)],
               b = from[2 * static_cast<std::size_t>(i) + 1];
  const unsigned pixel = i / pieces_a_pixel, piece = i - pixel * pieces_a_pixel;
  using Half = Element<__half>;
  const uint4 rounded{Half::pack({a.x, a.y}), Half::pack({a.z, a.w}), Half::pack({b.x, b.y}),
                      Half::pack({b.z, b.w})};
  *reinterpret_cast<uint4*>(to + pixel * to_pixel + piece * lanes) = rounded;
}

}  // namespace

std::string cutlass_pooled_round_ready() {
  return describe(load(cutlass_pooled_round_kernel), "loading cutlass_pooled's conversion");
}

std::string cutlass_pooled_round(const float* pooled, void* y, Index pixels, Index k, Index y_pixel,
                                 cudaStream_t stream) noexcept {
  const Index pieces = pixels * (k / lanes);
  const auto blocks = static_cast<int>((pieces + threads - 1) / threads);
  const cudaError_t error =
      launch(cutlass_pooled_round_kernel, {blocks, threads, 0, stream},
             reinterpret_cast<const float4*>(pooled), static_cast<__half*>(y),
             static_cast<unsigned>(pieces), static_cast<unsigned>(k / lanes), y_pixel);
  if (error == cudaSuccess) return {};
  return describe(error, "launching cutlass_pooled's conversion");
}

}  // namespace convoy::cuda::teaching
