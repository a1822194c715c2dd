// The products of the window family, one 32-byte part of the depth at a time: what a type's mma is.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/ptx/mma.cuh"
#include "cuda/types.cuh"

namespace convoy::cuda::sm80 {

/// `a` of 16 rows, `b` of 8 filters, as ldmatrix loads them; sums += a * b.
template <class T>
struct Product {
  static __device__ __forceinline__ void add(Sum<T> (&sums)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    if constexpr (std::is_same_v<T, __half>)
      ptx::mma_m16n8k16_f16(sums, a, b0, b1);
    else
      ptx::mma_m16n8k16_bf16(sums, a, b0, b1);
  }
};

/// A number of fp32 as two of tf32 (11 bits each): high is rounded to nearest, low is what is left.
/// Integers below 2^11 are high alone, so that their products and sums are exact.
struct Split {
  std::uint32_t high, low;
};
__device__ __forceinline__ Split split(std::uint32_t bits) {
  const std::uint32_t high = (bits + 0x1000u) & 0xffffe000u;
  // Tensor Cores cut off what lies below tf32. The factor makes up for it: it adds 0.4 to 0.75 of
  // a last place, which leaves 11 bits as they are. An addition to the bits would round better, and
  // turn the NaN that arithmetic makes, 0x7fffffff, of which high is -0, into a number.
  constexpr float half_a_place = 1 + 0x1.8p-12F;
  const float low = (__uint_as_float(bits) - __uint_as_float(high)) * half_a_place;
  return {high, __float_as_uint(low)};
}

/// A warp's rows by filters: Ms times 16 by Ns times 8.
///
/// `Apart`, for results that keep fp32's bits: the sum of a part's products starts at 0 and is then
/// added as fp32 adds. Tensor Cores cut what they add off, and over a long sum that adds up. So it
/// is of fp32 always, which is three products of tf32: low * low lies below fp32's last bit.
template <class T, bool Apart, int Ms, int Ns, class Live>
__device__ __forceinline__ void multiply(Sum<T> (&sums)[Ms][Ns][4], const std::uint32_t (&a)[Ms][4],
                                         const std::uint32_t (&b)[Ns / 2][4], Live live) {
  const auto at = [&](int j, int half) { return b[j / 2][j % 2 * 2 + half]; };
  if constexpr (std::is_same_v<T, float>) {
    Split of_b[Ns][2];
#pragma unroll
    for (int j = 0; j < Ns; ++j) of_b[j][0] = split(at(j, 0)), of_b[j][1] = split(at(j, 1));
#pragma unroll
    for (int i = 0; i < Ms; ++i) {
      std::uint32_t high[4], low[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Split of_a = split(a[i][e]);
        high[e] = of_a.high, low[e] = of_a.low;
      }
      // Product by product of a few sums: one after the other each would wait for the one before.
      constexpr int together = Ms == 1 ? Ns : 2;
#pragma unroll
      for (int j0 = 0; j0 < Ns; j0 += together) {
        float parts[together][4] = {};
        const auto each = [&](auto product) {
#pragma unroll
          for (int j = 0; j < together; ++j)
            if (live(j0 + j)) product(parts[j], of_b[j0 + j], sums[i][j0 + j]);
        };
        each([&](auto& part, auto& b, auto&) {
          ptx::mma_m16n8k8_tf32(part, low, b[0].high, b[1].high);
        });
        each([&](auto& part, auto& b, auto&) {
          ptx::mma_m16n8k8_tf32(part, high, b[0].low, b[1].low);
        });
        each([&](auto& part, auto& b, auto&) {
          ptx::mma_m16n8k8_tf32(part, high, b[0].high, b[1].high);
        });
        each([&](auto& part, auto&, auto& sum) {
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[e] += part[e];
        });
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < Ns; ++j) {
      if (!live(j)) continue;
#pragma unroll
      for (int i = 0; i < Ms; ++i) {
        if constexpr (Apart) {
          Sum<T> part[4] = {};
          Product<T>::add(part, a[i], at(j, 0), at(j, 1));
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][j][e] += part[e];
        } else {
          Product<T>::add(sums[i][j], a[i], at(j, 0), at(j, 1));
        }
      }
    }
  }
}

}  // namespace convoy::cuda::sm80
