// From sums to staged memory, the same for every Hopper family: pool, PostOps, one rounding, store.
// A family says which of its accumulators make a window and where pixels go.
#pragma once

#include <cstdint>

#include "cuda/post_ops.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/staged.hpp"
#include "cuda/sm90/warpgroups.cuh"
#include "cuda/types.cuh"

namespace convoy::cuda::sm90 {

template <class T>
__device__ __forceinline__ std::uint32_t pack(float a, float b) {
  return Element<T>::pack({a, b});
}

__device__ __forceinline__ float max4(float a, float b, float c, float d) {
  return ptx::max_nan(ptx::max_nan(a, b), ptx::max_nan(c, d));
}

/// What one thread gives to one column pair of two 8x8 blocks of stmatrix: two neighbouring columns
/// (pixels or images) of channel lane/4 (`low`) and of channel lane/4 + 8 (`high`). Where the stage
/// pools, a column is the maximum of its window's sums: the activation allows that
/// (math::may_pool_first), and the bias of a channel is one number.
template <class Value>
struct Fragment {
  Value low[2], high[2];
};

/// The biases of a thread's two channels, `channel` and 8 more, as PostOps::load_bias has them.
__device__ __forceinline__ void load_bias(const PostOps& post, int channel, float (&of)[2]) {
  post.load_bias(
      channel, [](int i) { return 8 * i; }, of);
}

/// Writes a warpgroup's channels x pixels to `staging`: a row of 128 bytes a pixel, swizzled as TMA
/// expects it; or, of 32 channels, which two warps have, one of 64 bytes. `packed(f, low, high)`
/// gives fragment f's pairs of either channel, `row(f, c)` the pixel of its column c; both are
/// called with compile-time f once unrolled.
template <int Count, int Channels, class Packed, class Row>
__device__ __forceinline__ void write_packed(std::uint32_t staging, Packed packed, Row row) {
  static_assert(Channels == 64 || Channels == 32, "a warpgroup's tile has 64 channels, or half");
  // Lane 8m + c addresses column c of block m: m&1 says which 8 of the warp's 16 channels, m>>1
  // which of two fragments.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const StagedLane mine(lane, warp);
  const int column = mine.column, unit = mine.unit;
  const auto address = [&](int pixel) { return staged_at<Channels>(staging, pixel, unit); };
#pragma unroll
  for (int f = 0; f + 1 < Count; f += 2) {
    std::uint32_t r[4];
    packed(f, r[0], r[1]);
    packed(f + 1, r[2], r[3]);
    const int first = row(f, column), second = row(f + 1, column);
    ptx::stmatrix_trans(address(lane < 16 ? first : second), r[0], r[1], r[2], r[3]);
  }
  if constexpr (Count % 2 == 1) {
    std::uint32_t low, high;
    packed(Count - 1, low, high);
    ptx::stmatrix_trans(address(row(Count - 1, column)), low, high);
  }
}

/// Applies PostOps, rounds once and writes a warpgroup's tile to `staging`. `value(f)` is fragment
/// f, `bias` loaded.
template <class T, int Count, int Channels = 64, class Value, class Row>
__device__ __forceinline__ void write_staging(const PostOps& post, const float (&bias)[2],
                                              std::uint32_t staging, Value value, Row row) {
  post.with_form([&]<Form F>() {
    const PackedClamp<T> clamped(post);
    const float low_bias = post.addend(bias[0]), high_bias = post.addend(bias[1]);
    write_packed<Count, Channels>(
        staging,
        [&](int f, std::uint32_t& low, std::uint32_t& high) {
          const auto of = [&](float v, float b) { return post.formed<F>(v, b); };
          const Fragment<Sum<T>> v = value(f);
          low = clamped(pack<T>(of(v.low[0], low_bias), of(v.low[1], low_bias)));
          high = clamped(pack<T>(of(v.high[0], high_bias), of(v.high[1], high_bias)));
        },
        row);
  });
}

/// Whether a tile's values are spikes, with nothing left to do: a neuron's sums specialise it.
template <class Sums>
constexpr bool gives_spikes = false;

/// Writes a warpgroup's tile of spikes, which are 0 or 1 in any type.
template <class T, int Count, class Value, class Row>
__device__ __forceinline__ void write_spikes(std::uint32_t staging, Value value, Row row) {
  write_packed<Count, 64>(
      staging,
      [&](int f, std::uint32_t& low, std::uint32_t& high) {
        const Fragment<Sum<T>> v = value(f);
        low = pack<T>(v.low[0], v.low[1]);
        high = pack<T>(v.high[0], v.high[1]);
      },
      row);
}

/// A store of warpgroup g through its staging buffer: `write` by all its threads, once what was
/// stored from the buffer has left, `store` by one. `others`: buffers that take turns with it,
/// which may still be on their way.
template <class Write, class Store>
__device__ __forceinline__ void store_staged(int g, bool others, Write write, Store store) {
  const bool leader = leads_warpgroup();
  if (leader && others) ptx::bulk_wait_read<1>();
  if (leader && !others) ptx::bulk_wait_read<0>();
  sync_warpgroup(g);
  write();
  ptx::fence_proxy_async();
  sync_warpgroup(g);
  if (leader) {
    store();
    ptx::bulk_commit();
  }
}

}  // namespace convoy::cuda::sm90
