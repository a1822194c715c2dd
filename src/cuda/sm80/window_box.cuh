// The window family's kernel for small groups of 3x3 filters: a box of pixels in shared memory
// (window_box.hpp) that warps read tap by tap, with their weights in registers.
//
// A warp makes 32 rows by 16 filters at a time. The 16 filters have channels in common with one
// 32-byte part of the pixels, or with both (Parts). The order of summation is that of the other
// tiles: taps, parts.
#pragma once

#include "cuda/ptx/shared.cuh"
#include "cuda/sm80/window_box_thread.hpp"
#include "cuda/sm80/window_epilogue.cuh"

namespace convoy::cuda::sm80 {

/// Copies the inputs of boxes: a warp a row, a thread one 16-byte unit of every eighth pixel.
class BoxLoads {
 public:
  /// `group_bytes`: from a group's channels to the next one's; `channel_bytes`: that there are.
  __device__ __forceinline__ BoxLoads(const WindowParams& p, int group, int group_bytes,
                                      int channel_bytes, std::uint32_t shared)
      : p_(p) {
    const BoxCopies mine(static_cast<int>(threadIdx.x) % 32);
    const int unit = mine.unit;
    column_ = mine.column;
    left_ = column_ + p.at.g.columns.at(0, 0);
    there_ = unit * unit_bytes < channel_bytes;
    x_ = p.x + static_cast<Index>(group) * group_bytes + unit * unit_bytes + left_ * p.at.g.pixel;
    to_ = shared + p.at.box.input_at(0, column_) + unit * unit_bytes;
  }
  __device__ __forceinline__ void box(const math::ConvPixel<int>& first, std::uint32_t slot) const {
    const WindowBox& box = p_.at.box;
    const WindowGeometry& g = p_.at.g;
    const int warps = static_cast<int>(blockDim.x) / 32, h0 = g.rows.at(first.p, 0);
    for (int row = static_cast<int>(threadIdx.x) / 32; row < box.images * box.in_rows;
         row += warps) {
      int image = 0, of_image = row;
      if (box.images > 1) image = row, of_image = box.of_rows.reduce(image);
      const int n = first.n + image, h = h0 + of_image;
      const bool valid = there_ && n < p_.at.images && g.rows.inside(h);
      const char* from = x_ + n * g.image + h * g.row;
      std::uint32_t to = to_ + slot + row * box.in_row() * box_pixel_bytes;
      for (int column = column_, w = left_; column < box.in_columns;
           column += box_columns, w += box_columns) {
        ptx::cp_async_16_or_zero(
            to, from, valid && static_cast<unsigned>(w) < static_cast<unsigned>(g.columns.size));
        from += box_columns * g.pixel;
        to += box.next_columns;
      }
    }
  }

 private:
  const WindowParams& p_;
  int column_, left_;
  bool there_;
  const char* x_;
  std::uint32_t to_;
};

/// A warp's weights: of 16 filters, all taps.
template <int Parts>
struct BoxWeights {
  std::uint32_t b[box_taps][Parts][4];  // [2j + k] of a part; k: half of its depth

  /// The group's block, once for all warps, to shared memory.
  static __device__ __forceinline__ void copy(const char* w, std::uint32_t shared) {
    for (int i = static_cast<int>(threadIdx.x); i < box_taps * block_filters * chunk_units;
         i += static_cast<int>(blockDim.x))
      ptx::cp_async_16(shared + swizzled(i / chunk_units, i % chunk_units), w + i * unit_bytes);
  }
  /// From there. `part`: the first that there is.
  __device__ __forceinline__ BoxWeights(std::uint32_t shared, int half, int part) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t row = shared + swizzled(box_filter_of(lane, half), part * 2 + lane / 8 % 2);
#pragma unroll
    for (int tap = 0; tap < box_taps; ++tap)
#pragma unroll
      for (int i = 0; i < Parts; ++i)
        // The second part's units are two on, which the swizzle makes one bit of the address.
        ptx::ldmatrix_x4(b[tap][i], (row ^ i * product_bytes) + tap * slab_bytes);
  }
};

/// What a warp's sums become.
template <class T>
class BoxWrites {
 public:
  __device__ __forceinline__ BoxWrites(const WindowParams& p, int group, int filters, int half)
      : p_(p), group_(group), clamped_(p.post) {
    filter_ = box_four(static_cast<int>(threadIdx.x), half);
    left_ = filters - filter_;
    channel_ = group * p.at.groups.filters + filter_;
    fast_ = p.y_store == unit_bytes && filters % 4 == 0 && is_identity(p.post.act);
    p.post.bias_of(channel_, left_, bias_);
  }

  /// `first`: the box's pixel.
  __device__ __forceinline__ void box(const math::ConvPixel<int>& first) {
    const WindowBox& box = p_.at.box;
    const int of_image = static_cast<int>(p_.at.g.down.d) * box.window;  // rows
    const int row = first.n * of_image + first.p;
    const int rows = box_rows_from(p_.at, first, row, of_image);
    pixels_ = left_ > 0 ? min(box.pixels(), rows * box.columns) : 0;
    pixel_ = row * box.columns >> 2 * (box.window - 1);
  }
  /// Rows `row` to `row` + 31 of the box. Two copies: one of each form would spill.
  __device__ __forceinline__ void write(int row, const Sum<T> (&sums)[2][2][4]) const {
    if (fast_)
      write_as<true>(row, sums);
    else
      write_as<false>(row, sums);
  }
  /// As the other tiles' `mend`: sums that are no number, by their own products alone.
  __device__ __forceinline__ void mend(const math::ConvPixel<int>& first, int row,
                                       Sum<T> (&sums)[2][2][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      Sum<T>& sum = sums[e / 8][e / 4 % 2][e % 4];
      if (sum * 0.0f == 0.0f) continue;
      const BoxSumPlace place(lane, e, p_.at.box.window > 1);
      const int index = row + place.row;
      if (index >= pixels_ || place.of_four >= left_) continue;
      const math::ConvPixel<int> in = p_.at.box.pixel_of(index);
      sum =
          sum_again<T>(p_, {first.n + in.n, first.p + in.p, in.q}, group_, filter_ + place.of_four);
    }
  }

 private:
  template <bool Fast>
  __device__ __forceinline__ void write_as(int row, const Sum<T> (&sums)[2][2][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (p_.at.box.window > 1) {
      Sum<T> v[4];
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd)
          v[2 * j + odd] = ptx::max_nan(ptx::max_nan(sums[0][j][odd], sums[0][j][2 + odd]),
                                        ptx::max_nan(sums[1][j][odd], sums[1][j][2 + odd]));
      const int index = row / 4 + lane / 4;
      if (index < pixels_ / 4) store<Fast>(y_of(index), v);
      return;
    }
    const int index = row + lane / 4;
    T* to = y_of(index);
#pragma unroll
    for (int o = 0; o < 4; ++o) {
      Sum<T> v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = sums[o / 2][i / 2][o % 2 * 2 + i % 2];
      if (index + o * 8 < pixels_) store<Fast>(to, v);
      to += 8 * p_.y_pixel;
    }
  }
  __device__ __forceinline__ T* y_of(int pixel) const {
    return reinterpret_cast<T*>(p_.y) + (pixel_ + pixel) * p_.y_pixel + channel_;
  }
  /// Rounded before they are clamped, two at a time: that keeps their order.
  template <bool Fast>
  __device__ __forceinline__ void store(T* to, const Sum<T> (&v)[4]) const {
    std::uint32_t packed[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto formed = [&](int e) {
        if constexpr (Fast)
          return p_.post.formed<Form::identity>(v[e], bias_[e]);
        else
          return p_.post.formed(v[e], bias_[e]);
      };
      packed[i] = clamped_(Element<T>::pack({formed(2 * i), formed(2 * i + 1)}));
    }
    if constexpr (Fast) {
      *reinterpret_cast<uint2*>(to) = make_uint2(packed[0], packed[1]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (i < left_)
          reinterpret_cast<unsigned short*>(to)[i] =
              static_cast<unsigned short>(packed[i / 2] >> 16 * (i % 2));
    }
  }

  const WindowParams& p_;
  int group_, filter_, left_, channel_;
  int pixel_ = 0, pixels_ = 0;  // the box's first, and how many there are
  bool fast_;                   // no form but the identity's, and y takes four channels at a time
  PackedClamp<T> clamped_;
  float bias_[4];
};

/// 32 rows by 16 filters. `a`: what the lane's rows of the first tap are, first and second 16.
template <class T, int Parts>
__device__ __forceinline__ void box_sums(const WindowBox& box, const BoxWeights<Parts>& weights,
                                         const std::uint32_t (&a)[2], Sum<T> (&sums)[2][2][4]) {
#pragma unroll
  for (int tap = 0; tap < box_taps; ++tap)
#pragma unroll
    for (int part = 0; part < Parts; ++part)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        std::uint32_t pixels[4];
        ptx::ldmatrix_x4(pixels, a[i] + box.taps[tap] + part * product_bytes);
#pragma unroll
        for (int j = 0; j < 2; ++j)
          Product<T>::add(sums[i][j], pixels, weights.b[tap][part][2 * j],
                          weights.b[tap][part][2 * j + 1]);
      }
}

/// All boxes of the CTA. Again: also makes sums that are no number again, which takes registers;
/// else returns whether this thread met one.
template <class T, int Parts, bool Again>
__device__ __forceinline__ bool box_pass(const WindowParams& p, std::uint32_t table) {
  const WindowBox& box = p.at.box;
  const std::uint32_t shared = table + 4 * box.table_rows();
  const CtaPlace place = p.at.order.place(static_cast<int>(blockIdx.x));
  const int group = place.n, lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32;
  const BoxGroup there(p.at, group);
  const int channels = there.channels, filters = there.filters;
  const int half = warp % 2;
  // Where one part is all that there is of the filters' channels: the second?
  const int part = Parts == 1 && box_first_part(p.at.groups.live, half) == 0 ? 1 : 0;
  BoxWrites<T> writes(p, group, filters, half);
  // Where the lane's rows of the first tap lie, by the table.
  std::uint32_t rows[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) rows[i] = table + 4 * box_row_of(lane, i, box.window > 1);
  const std::uint32_t of_lane = part * product_bytes + (lane >> 4) * unit_bytes;
  constexpr int size = static_cast<int>(sizeof(T));
  const BoxLoads loads(p, group, p.at.groups.channels * size, channels * size, shared);
  // They are there before the kernel before has ended.
  BoxWeights<Parts>::copy(p.w + group * p.at.block_bytes, shared + box.bytes());
  ptx::cp_async_commit();
  ptx::grid_dependency_wait();
  loads.box(box.first_of(place.m), 0);
  ptx::cp_async_commit();
  ptx::cp_async_wait<1>();
  __syncthreads();
  const BoxWeights<Parts> weights(shared + box.bytes(), half, part);
  __syncthreads();  // the second slot is where they lay
  std::uint32_t slot = 0;
  float worst = 0;  // or NaN
  for (int number = place.m; number < box.count; number += p.at.m_tiles) {
    const std::uint32_t other = slot == 0 ? box.bytes() : 0;
    const bool last = number + p.at.m_tiles >= box.count;
    if (!last) loads.box(box.first_of(number + p.at.m_tiles), other);
#if __CUDA_ARCH__ >= 900
    if (last) ptx::grid_launch_dependents();
#endif
    ptx::cp_async_commit();
    ptx::cp_async_wait<1>();
    __syncthreads();
    const math::ConvPixel<int> first = box.first_of(number);
    writes.box(first);
    for (int row = warp / 2 * box_rows; row < box.pixels();
         row += static_cast<int>(blockDim.x) / 64 * box_rows) {
      std::uint32_t a[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        a[i] = shared + slot + of_lane + ptx::load_shared(rows[i] + 4 * row);
      Sum<T> sums[2][2][4] = {};
      box_sums<T, Parts>(box, weights, a, sums);
      if constexpr (Again) writes.mend(first, row, sums);
#pragma unroll
      for (int e = 0; e < 16; ++e) worst = fmaf(sums[e / 8][e / 4 % 2][e % 4], 0.0f, worst);
      writes.write(row, sums);
    }
    __syncthreads();
    slot = other;
  }
  return worst != 0.0f;
}
template <class T, int Parts>
__device__ __noinline__ void box_pass_again(const WindowParams& p, std::uint32_t table) {
  box_pass<T, Parts, true>(p, table);
}

template <class T, int Parts>
__global__ void __launch_bounds__(256, 2) window_box(const __grid_constant__ WindowParams p) {
  extern __shared__ __align__(128) unsigned char ring[];
  const WindowBox& box = p.at.box;
  for (int index = static_cast<int>(threadIdx.x); index < box.table_rows();
       index += static_cast<int>(blockDim.x))
    reinterpret_cast<int*>(ring)[index] =
        box.output_at(box.pixel_of(index < box.pixels() ? index : 0), p.at.g.rows.stride);
  const auto table = static_cast<std::uint32_t>(__cvta_generic_to_shared(ring));
  const bool bad = box_pass<T, Parts, false>(p, table);
  // Only merged groups multiply what is not theirs, and those that are run here take one part.
  if constexpr (Parts == 1)
    if (p.at.groups.merged > 1 && __syncthreads_or(bad) != 0) box_pass_again<T, Parts>(p, table);
}

}  // namespace convoy::cuda::sm80
