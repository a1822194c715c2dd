// pad: a thread moves eight channels of a pixel between a row of 16-byte pieces and one of any
// length, whose loads or stores are as wide as its addresses allow.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/wrap/pad.hpp"
#include "math/divide.hpp"

namespace convoy::cuda {
namespace {

constexpr int threads = 256, lanes = 8;

struct PadParams {
  const std::uint16_t* from;
  std::uint16_t* to;
  unsigned pieces, pieces_a_pixel;
  int channels;
  Index from_stride, to_stride;
  PadBias bias;
};

template <int Width>
struct alignas(2 * Width) Word {
  std::uint16_t v[Width];
};

/// `Width`: elements of a load or store on the side of any length; `Widens`: that side is `from`.
template <int Width, bool Widens>
__global__ void __launch_bounds__(threads) pad(const PadParams p) {
  if (blockIdx.x == 0 && p.bias.to != nullptr) {
    const int k = static_cast<int>(p.bias.k), wide = static_cast<int>(p.bias.wide);
    for (int i = threadIdx.x; i < wide; i += threads) p.bias.to[i] = i < k ? p.bias.from[i] : 0.0f;
  }
  const unsigned i = blockIdx.x * threads + threadIdx.x;
  if (i >= p.pieces) return;
  const unsigned pixel = i / p.pieces_a_pixel;
  const int first = static_cast<int>(i - pixel * p.pieces_a_pixel) * lanes;
  const std::uint16_t* const from = p.from + pixel * p.from_stride + first;
  std::uint16_t* const to = p.to + pixel * p.to_stride + first;
  alignas(16) Word<Width> words[lanes / Width] = {};
  if constexpr (!Widens) *reinterpret_cast<uint4*>(words) = *reinterpret_cast<const uint4*>(from);
#pragma unroll
  for (int w = 0; w < lanes / Width; ++w) {
    if (first + w * Width >= p.channels) continue;
    if constexpr (Widens)
      words[w] = reinterpret_cast<const Word<Width>*>(from)[w];
    else
      reinterpret_cast<Word<Width>*>(to)[w] = words[w];
  }
  if constexpr (Widens) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(words);
}

using PadKernel = void (*)(PadParams);
constexpr PadKernel kernels[2][3] = {{pad<1, false>, pad<2, false>, pad<4, false>},
                                     {pad<1, true>, pad<2, true>, pad<4, true>}};

}  // namespace

std::string pad_ready() {
  for (const auto& row : kernels) {
    for (const PadKernel kernel : row) {
      if (const cudaError_t error = load(kernel); error != cudaSuccess)
        return describe(error, "loading pad");
    }
  }
  return {};
}

std::string pad_launch(const Pad& pixels, const PadBias& bias, cudaStream_t stream) noexcept {
  const Index pieces_a_pixel = math::ceil_div(pixels.widens ? pixels.wide : pixels.channels, lanes);
  const Index pieces = pixels.pixels * pieces_a_pixel;
  if (pieces == 0 && bias.to == nullptr) return {};
  if (pieces > std::numeric_limits<int>::max())
    return "pad: " + std::to_string(pieces) +
           " pieces of eight channels, at most 2^31 - 1. Use fewer images.";
  PadParams p{};
  p.from = static_cast<const std::uint16_t*>(pixels.from);
  p.to = static_cast<std::uint16_t*>(pixels.to);
  p.pieces = static_cast<unsigned>(pieces);
  p.pieces_a_pixel = static_cast<unsigned>(std::max<Index>(pieces_a_pixel, 1));
  p.channels = static_cast<int>(pixels.channels);
  p.from_stride = pixels.from_stride;
  p.to_stride = pixels.to_stride;
  p.bias = bias;
  const auto narrow = reinterpret_cast<std::uintptr_t>(pixels.widens ? pixels.from : pixels.to);
  const Index stride = pixels.widens ? pixels.from_stride : pixels.to_stride;
  const auto wide_as = [&](int width) {
    return narrow % (2 * static_cast<unsigned>(width)) == 0 && stride % width == 0 &&
           pixels.channels % width == 0;
  };
  const int width = wide_as(4) ? 2 : wide_as(2) ? 1 : 0;
  const auto blocks = static_cast<int>(std::max(1U, (p.pieces + threads - 1) / threads));
  const cudaError_t error = launch(kernels[pixels.widens][width], {blocks, threads, 0, stream}, p);
  if (error == cudaSuccess) return {};
  return describe(error, "launching pad");
}

}  // namespace convoy::cuda
