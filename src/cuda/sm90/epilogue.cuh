// What the Hopper families share between the accumulators and the TMA store.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/activate.cuh"
#include "cuda/ptx/stmatrix.cuh"

namespace convoy::cuda::sm90 {

template <class T>
__device__ __forceinline__ std::uint32_t pack(float a, float b) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 v = __floats2half2_rn(a, b);
    return *reinterpret_cast<const std::uint32_t*>(&v);
  } else {
    const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const std::uint32_t*>(&v);
  }
}

__device__ __forceinline__ float max4(float a, float b, float c, float d) {
  return ptx::max_nan(ptx::max_nan(a, b), ptx::max_nan(c, d));
}

/// A unit is what one thread gives to one column pair of two 8x8 blocks: two neighbouring columns
/// (pixels or images) of channel lane/4 (`low`) and of channel lane/4 + 8 (`high`).
struct Unit {
  float low[2], high[2];
};

/// min(max(v, low), high) of packed values. Rounding never decreases, so that clamping after it
/// gives the bits of clamping before, with half the instructions.
template <class T>
struct PackedClamp {
  std::uint32_t low, high;
  __device__ __forceinline__ explicit PackedClamp(const Clamp& c)
      : low(pack<T>(c.low, c.low)), high(pack<T>(c.high, c.high)) {}
  __device__ __forceinline__ std::uint32_t operator()(std::uint32_t v) const {
    return ptx::min2_nan<T>(ptx::max2_nan<T>(v, low), high);
  }
};

/// Adds the bias, activates, rounds once and writes a warpgroup's channels x pixels to
/// `staging`: a row of 128 bytes a pixel, swizzled as TMA expects it; or, of 32 channels, which two
/// warps have, one of 64 bytes. `value(u)` is unit u, `row(u,
/// c)` the pixel of its column c; both are called with compile-time u once unrolled.
template <class T, int Count, int Channels, bool Leaky, class Value, class Row>
__device__ __forceinline__ void stage_activated(const Clamp& clamp, const float (&bias)[2],
                                                std::uint32_t staging, Value value, Row row) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const PackedClamp<T> clamped(clamp);
  const float low_bias = positive_zero(bias[0]), high_bias = positive_zero(bias[1]);
  const auto act = [&](float v, float b) {
    v += b;
    if constexpr (Leaky) v = v < 0.0f ? v * clamp.slope : v;
    return v;
  };
  const auto packed = [&](int u, std::uint32_t& low, std::uint32_t& high) {
    const Unit v = value(u);
    low = clamped(pack<T>(act(v.low[0], low_bias), act(v.low[1], low_bias)));
    high = clamped(pack<T>(act(v.high[0], high_bias), act(v.high[1], high_bias)));
  };
  // Lane 8m + c addresses column c of block m: m&1 says which 8 of the warp's 16 channels, m>>1
  // which of two units.
  const int column = lane & 7, piece = 2 * warp + (lane >> 3 & 1);
  const auto address = [&](int pixel) {
    if constexpr (Channels == 64)
      return staging + pixel * 128 + ((piece ^ (pixel & 7)) << 4);
    else
      return staging + pixel * 64 + ((piece ^ (pixel >> 1 & 3)) << 4);
  };
#pragma unroll
  for (int u = 0; u + 1 < Count; u += 2) {
    std::uint32_t r[4];
    packed(u, r[0], r[1]);
    packed(u + 1, r[2], r[3]);
    const int first = row(u, column), second = row(u + 1, column);
    ptx::stmatrix_trans(address(lane < 16 ? first : second), r[0], r[1], r[2], r[3]);
  }
  if constexpr (Count % 2 == 1) {
    std::uint32_t low, high;
    packed(Count - 1, low, high);
    ptx::stmatrix_trans(address(row(Count - 1, column)), low, high);
  }
}

template <class T, int Count, int Channels = 64, class Value, class Row>
__device__ __forceinline__ void stage_units(const Clamp& clamp, const float (&bias)[2],
                                            std::uint32_t staging, Value value, Row row) {
  if (clamp.slope == 1.0f)
    stage_activated<T, Count, Channels, false>(clamp, bias, staging, value, row);
  else
    stage_activated<T, Count, Channels, true>(clamp, bias, staging, value, row);
}

}  // namespace convoy::cuda::sm90
