// pad: a thread moves eight channels of a pixel between a row of 16-byte pieces and one of any
// length, whose loads or stores are as wide as its addresses allow. Where those would be narrow and
// pixels lie one behind the other, `pad_dense` takes them by way of shared memory: there a block's
// pixels are whole pieces, too.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/ptx/sync.cuh"
#include "cuda/wrap/pad.hpp"
#include "math/divide.hpp"

namespace convoy::cuda {
namespace {

constexpr int threads = 256, lanes = 8;
constexpr int dense_bytes = 16 << 10;  // of shared memory, of a block
constexpr Index enough_blocks = 512;

struct PadParams {
  const std::uint16_t* from;
  std::uint16_t* to;
  unsigned pieces, pieces_a_pixel, pixels;
  int channels, of_block;  // pixels of a block of pad_dense
  Index from_stride, to_stride;
  PadBias bias;
};

template <int Width>
struct alignas(2 * Width) Word {
  std::uint16_t v[Width];
};

__device__ __forceinline__ void pad_bias(const PadBias& bias) {
  if (blockIdx.x != 0 || bias.to == nullptr) return;
  const int k = static_cast<int>(bias.k), wide = static_cast<int>(bias.wide);
  for (int i = threadIdx.x; i < wide; i += threads) bias.to[i] = i < k ? bias.from[i] : 0.0f;
}

/// `Width`: elements of a load or store on the side of any length; `Widens`: that side is `from`.
template <int Width, bool Widens>
__global__ void __launch_bounds__(threads) pad(const PadParams p) {
  ptx::grid_dependency_wait();
  pad_bias(p.bias);
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

/// Away from pieces: `of_block` pixels, a multiple of eight, so that the block's begin and end on
/// 16 bytes, but for the last one's end. (The other way the narrow side is read, by way of the L1.)
__global__ void __launch_bounds__(threads) pad_dense(const PadParams p) {
  __shared__ __align__(16) std::uint16_t packed[dense_bytes / 2];
  ptx::grid_dependency_wait();
  pad_bias(p.bias);
  const int first = static_cast<int>(blockIdx.x) * p.of_block, channels = p.channels;
  const int pixels = min(p.of_block, static_cast<int>(p.pixels) - first);
  const int elements = pixels * channels, of_pixel = static_cast<int>(p.pieces_a_pixel);
  for (int i = threadIdx.x; i < pixels * of_pixel; i += threads) {
    const int pixel = i / of_pixel, c = (i - pixel * of_pixel) * lanes;
    std::uint16_t* const here = packed + pixel * channels + c;
    alignas(16) std::uint16_t piece[lanes];
    *reinterpret_cast<uint4*>(piece) =
        *reinterpret_cast<const uint4*>(p.from + (first + pixel) * p.from_stride + c);
#pragma unroll
    for (int e = 0; e < lanes; ++e)
      if (c + e < channels) here[e] = piece[e];
  }
  __syncthreads();
  std::uint16_t* const to = p.to + static_cast<Index>(first) * channels;
  for (int i = threadIdx.x; i < elements / lanes; i += threads)
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(packed)[i];
  for (int i = elements / lanes * lanes + threadIdx.x; i < elements; i += threads)
    to[i] = packed[i];
}

using PadKernel = void (*)(PadParams);
constexpr PadKernel kernels[2][3] = {{pad<1, false>, pad<2, false>, pad<4, false>},
                                     {pad<1, true>, pad<2, true>, pad<4, true>}};

}  // namespace

std::string pad_ready() {
  const auto load_all = [](const auto& row) {
    cudaError_t error = cudaSuccess;
    for (const PadKernel kernel : row)
      if (error == cudaSuccess) error = load(kernel);
    return error;
  };
  for (const cudaError_t error : {load_all(kernels[0]), load_all(kernels[1]), load(pad_dense)})
    if (error != cudaSuccess) return describe(error, "loading pad");
  return {};
}

std::string pad_launch(const Pad& pixels, const PadBias& bias, bool overlap_previous,
                       cudaStream_t stream) noexcept {
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
  // Of pixels as many as fit, in eights, and of a small tensor fewer, for as many blocks as a GPU
  // takes at once.
  const Index fit = dense_bytes / 2 / std::max<Index>(pixels.channels, 1) / 8 * 8;
  const bool dense = !pixels.widens && width < 2 && fit > 0 && stride == pixels.channels &&
                     narrow % 16 == 0 && pixels.pixels > 0;
  p.pixels = static_cast<unsigned>(pixels.pixels);
  p.of_block = static_cast<int>(std::clamp<Index>(pixels.pixels / enough_blocks / 8 * 8,
                                                  std::min<Index>(fit, 8),
                                                  std::max<Index>(std::min<Index>(fit, 64), 8)));
  const Index blocks = dense ? math::ceil_div(pixels.pixels, p.of_block)
                             : std::max<Index>(1, math::ceil_div(pieces, threads));
  const cudaError_t error = launch(dense ? pad_dense : kernels[pixels.widens][width],
                                   {.grid = static_cast<int>(blocks),
                                    .threads = threads,
                                    .stream = stream,
                                    .overlap_previous = overlap_previous},
                                   p);
  if (error == cudaSuccess) return {};
  return describe(error, "launching pad");
}

}  // namespace convoy::cuda
