// What the window family does with its sums: pool, bias, activation, one rounding, store; and
// before that, sums that came out as no number are made again, product by product.
#pragma once

#include "cuda/sm80/window_pairs.cuh"

namespace convoy::cuda::sm80 {

/// One output's sum by its own products alone, in fp32. `filter`: of the group.
template <class T>
__device__ __noinline__ Sum<T> sum_again(const WindowParams& p, math::ConvPixel<int> pixel,
                                         int group, int filter) {
  constexpr int of_chunk = chunk_bytes / static_cast<int>(sizeof(T));
  const WindowGeometry& g = p.at.g;
  const WindowGroups& groups = p.at.groups;
  const int first_c = filter / groups.own_filters * groups.own_channels;
  const char* const x =
      p.x + (static_cast<Index>(group) * groups.channels + first_c) * sizeof(T) + pixel.n * g.image;
  const Index block = static_cast<Index>(group) * p.at.blocks + filter / block_filters;
  const int row = row_of_filter(filter % block_filters, p.at.in_order);
  Sum<T> sum = 0;
  for (int r = 0; r < g.r; ++r) {
    for (int s = 0; s < g.s; ++s) {
      const int h = g.rows.at(pixel.p, r), w = g.columns.at(pixel.q, s);
      if (!g.rows.inside(h) || !g.columns.inside(w)) continue;
      const T* const values = reinterpret_cast<const T*>(x + h * g.row + w * g.pixel);
      for (int c = 0; c < groups.own_channels; ++c) {
        const int at = first_c + c;
        const Index step = (static_cast<Index>(at / of_chunk) * g.r + r) * g.s + s;
        const T* const slab =
            reinterpret_cast<const T*>(p.w + (block * p.at.steps + step) * slab_bytes);
        sum = fmaf(Element<T>::widen(values[c]),
                   Element<T>::widen(slab[row * of_chunk + at % of_chunk]), sum);
      }
    }
  }
  return sum;
}

/// Merged groups multiply the values of other groups by 0, and fp32's halves of infinity are inf
/// and NaN: a NaN or an infinity may come from what is no product of the sum. Such sums are made
/// again; they stay what they are if it was.
template <class T, class Shape>
__device__ __forceinline__ void mend(const WindowParams& p, const WindowCta& cta, Sum<T>* shared,
                                     bool in_order, Sum<T> (&sums)[Shape::ms][Shape::ns][4]) {
  constexpr int count = Shape::ms * Shape::ns * 4;
  static_assert(count * Shape::threads * sizeof(Sum<T>) <= Shape::shared_bytes);
  float worst = 0;
#pragma unroll
  for (int e = 0; e < count; ++e)  // 0, or NaN where one is no number
    worst = fmaf(sums[e / 4 / Shape::ns][e / 4 % Shape::ns][e % 4], 0.0f, worst);
  if (__syncthreads_or(worst != 0.0f) == 0) return;
  Sum<T>* const mine = shared + threadIdx.x;
#pragma unroll
  for (int e = 0; e < count; ++e)
    mine[e * Shape::threads] = sums[e / 4 / Shape::ns][e / 4 % Shape::ns][e % 4];
#pragma unroll 1
  for (int e = 0; e < count; ++e) {
    if (mine[e * Shape::threads] * 0.0f == 0.0f) continue;
    const WindowSumPlace at(static_cast<int>(threadIdx.x), e, Shape::warps(), p.at.g.window > 1,
                            in_order);
    const int m = cta.m + at.row, filter = cta.filter + at.filter;
    if (m < p.at.g.m && filter < cta.filters)
      mine[e * Shape::threads] = sum_again<T>(p, p.at.g.pixel_of(m), cta.group, filter);
  }
#pragma unroll
  for (int e = 0; e < count; ++e)
    sums[e / 4 / Shape::ns][e / 4 % Shape::ns][e % 4] = mine[e * Shape::threads];
  __syncthreads();  // shared memory is written next by whoever stores
}

/// Four lanes' 4x4 words, transposed: word i of lane j goes to word j of lane i.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&w)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const auto swap = [&](std::uint32_t& low, std::uint32_t& high, int distance) {
    const bool upper = (lane & distance) != 0;
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
    if (upper)
      low = got;
    else
      high = got;
  };
  swap(w[0], w[1], 1);
  swap(w[2], w[3], 1);
  swap(w[0], w[2], 2);
  swap(w[1], w[3], 2);
}

/// Eight neighbouring channels of an output to where 16 bytes may be stored.
template <class T>
__device__ __forceinline__ void pack_eight(T* to, const float (&v)[8]) {
  constexpr int words = 8 / Element<T>::a_word;
  std::uint32_t packed[words];
#pragma unroll
  for (int i = 0; i < words; ++i) {
    if constexpr (words == 8)
      packed[i] = Element<T>::pack({v[i]});
    else
      packed[i] = Element<T>::pack({v[2 * i], v[2 * i + 1]});
  }
#pragma unroll
  for (int i = 0; i < words; i += 4)
    reinterpret_cast<uint4*>(to)[i / 4] =
        make_uint4(packed[i], packed[i + 1], packed[i + 2], packed[i + 3]);
}
template <class T>
__device__ __forceinline__ void store_eight(T* to, const float (&v)[8], int left) {
  if (left >= 8) {
    pack_eight(to, v);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < left) to[i] = Element<T>::round(v[i]);
}

/// A warp's outputs of 32 channels, staged in shared memory, to a y that takes no 16 bytes:
/// neighbouring lanes store neighbouring channels, where each lane's own eight would touch a sector
/// by themselves. `left`: channels that there are.
template <class T>
__device__ __forceinline__ void store_rows(const T* staged, T* to, Index pixel, int outputs,
                                           int left, bool words) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
  if (words) {
    constexpr int a_word = Element<T>::a_word, of_row = block_filters / a_word;  // words
    const int c = lane % of_row * a_word;
#pragma unroll 4
    for (int row = lane / of_row; row < outputs; row += a_word) {
      const T* const from = staged + row * block_filters + c;
      T* const at = to + row * pixel + c;
      if (c + a_word <= left)
        *reinterpret_cast<std::uint32_t*>(at) = *reinterpret_cast<const std::uint32_t*>(from);
      else if (c < left)
        *at = *from;
    }
  } else {
#pragma unroll 4
    for (int row = 0; row < outputs; ++row)
      if (lane < left) to[row * pixel + lane] = staged[row * block_filters + lane];
  }
  __syncwarp();
}

/// A warp's sums of block `jj` of 32 filters, of elements of T, with bias and activation, to y.
template <class T, class Out, class Shape, bool Pooled>
__device__ __forceinline__ void write_block(const WindowParams& p, const WindowCta& cta, int jj,
                                            bool in_order, Out* ring,
                                            const Sum<T> (&sums)[Shape::ms][Shape::ns][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int block = cta.filter + Shape::warps().filter(warp) + jj * block_filters;
  const int first = block + WindowStore(lane, 0, Pooled).filter, left = cta.filters - first;
  const int channel = cta.group * p.at.groups.filters + first;
  // Of the eight channels that this thread stores, whichever it has the sums of.
  float bias[8];
  p.post.bias_of(channel, left, bias);
  constexpr int outputs = Pooled ? Shape::ms / 2 : Shape::ms * 2;
  const auto values = [&](int o, float(&to)[8]) {
    Sum<T> v[8];
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int column = jj * 4 + j;
        if constexpr (Pooled)
          v[j * 2 + odd] = ptx::max_nan(
              ptx::max_nan(sums[2 * o][column][odd], sums[2 * o][column][2 + odd]),
              ptx::max_nan(sums[2 * o + 1][column][odd], sums[2 * o + 1][column][2 + odd]));
        else
          v[j * 2 + odd] = sums[o / 2][column][o % 2 * 2 + odd];
      }
    if (in_order) {
      std::uint32_t even[4], odds[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        even[j] = __float_as_uint(v[2 * j]), odds[j] = __float_as_uint(v[2 * j + 1]);
      transpose_quad(even);
      transpose_quad(odds);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        v[2 * j] = __uint_as_float(even[j]), v[2 * j + 1] = __uint_as_float(odds[j]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = p.post.apply(v[i], bias[i]);
  };
  const int m0 = cta.m + Shape::warps().row(warp);
  constexpr int a_pixel = Pooled ? 4 : 1;  // rows
  Out* const y = reinterpret_cast<Out*>(p.y);
  if (p.y_store == unit_bytes) {
#pragma unroll
    for (int o = 0; o < outputs; ++o) {
      float v[8];
      values(o, v);
      const int m = m0 + WindowStore(lane, o, Pooled).row;
      if (m < p.at.g.m && left > 0) store_eight(y + m / a_pixel * p.y_pixel + channel, v, left);
    }
    return;
  }
  static_assert(Shape::threads / 32 * outputs * 8 * block_filters * sizeof(Out) <=
                Shape::shared_bytes);
  Out* const staged = ring + warp * outputs * 8 * block_filters;
#pragma unroll
  for (int o = 0; o < outputs; ++o) {
    float v[8];
    values(o, v);
    pack_eight(staged + (o * 32 + lane) * 8, v);
  }
  const int pixel = m0 / a_pixel;
  store_rows(staged, y + pixel * p.y_pixel + cta.group * p.at.groups.filters + block, p.y_pixel,
             min(outputs * 8, p.at.g.m / a_pixel - pixel), cta.filters - block, p.y_store >= 4);
}

/// `Out`: y's type.
template <class T, class Shape, template <int> class Pixels, class Out = T>
__global__ void __launch_bounds__(Shape::threads, Shape::ctas)
    window(const __grid_constant__ WindowParams p) {
  extern __shared__ __align__(128) unsigned char ring[];
  constexpr bool table = std::is_same_v<Pixels<1>, Precomputed<1>>;
  WindowTap* const taps = reinterpret_cast<WindowTap*>(ring + Shape::shared_bytes);
  const WindowCta cta(p.at, Shape::m, Shape::n, static_cast<int>(blockIdx.x));
  WindowGeometry g = p.at.g;
  g.channel_bytes = cta.channels * static_cast<int>(sizeof(T));
  if constexpr (table) {
    for (int i = static_cast<int>(threadIdx.x); i < g.r * g.s; i += Shape::threads)
      taps[i] = tap_of(g, i);
    __syncthreads();
  }
  Sum<T> sums[Shape::ms][Shape::ns][4] = {};
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(ring));
  if constexpr (Shape::pairs)
    window_sums_in_pairs<T, Shape, Pixels>(p, cta, g, taps, shared, sums);
  else
    window_sums<T, Shape, Pixels, !std::is_same_v<Out, T>>(p, cta, g, taps, shared, sums);
#if __CUDA_ARCH__ >= 900
  // Not earlier: if this launch has few CTAs, those of the next kernel would start on the idle
  // multiprocessors only, and stay badly spread.
  ptx::grid_launch_dependents();
#endif
  const bool in_order = Shape::sparse || (Shape::narrow && p.at.in_order);
  constexpr bool halves = std::is_same_v<T, float>;
  if constexpr (halves || Shape::sparse || Shape::narrow)
    if (halves || p.at.groups.merged > 1)
      mend<T, Shape>(p, cta, reinterpret_cast<Sum<T>*>(ring), in_order, sums);
  const auto write = [&]<bool Pooled>() {
#pragma unroll
    for (int jj = 0; jj < Shape::warp_n / block_filters; ++jj)
      write_block<T, Out, Shape, Pooled>(p, cta, jj, in_order, reinterpret_cast<Out*>(ring), sums);
  };
  if (Shape::pools && g.window > 1)
    write.template operator()<Shape::pools>();
  else
    write.template operator()<false>();
}

}  // namespace convoy::cuda::sm80
