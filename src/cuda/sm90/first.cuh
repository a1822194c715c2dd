// first: y = pool(act(conv(norm(x), w) + bias)) for C <= 4 on Hopper, from top to bottom.
//
// Two producer warpgroups store a brick each of the image in shared memory, four channels a pixel,
// normalised and rounded; where rows are multiples of 16 bytes, TMA has brought the brick as it is,
// and with it the zeros around the image. There is no im2col: without swizzle a core matrix of
// wgmma is eight rows of 16 bytes, here eight pairs of neighbouring pixels, and the next taps are
// the same memory 16 bytes on. A row of eight output pixels takes every second one, so that the
// windows of a 2x2 pool lie in one thread: accumulators d[0] hold the first, third, ... pixel of a
// row, d[1] the others.
//
//   stride 1: d[e] column c reads the pairs that start at pixel 2c + e: a plane of pairs for each
//   e. stride 2: it reads the pairs 2c + e, 2c + e + 1, ... of the brick: a plane of even pairs,
//   one of
//             odd pairs, and the even ones again, one on, so that one distance serves both.
//
// Two consumer warpgroups take turns over channel blocks (K > 64) or bricks. Sum: r, then s in
// fours.
#pragma once

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/divide.hpp"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/first.hpp"

namespace convoy::cuda::sm90 {

enum class FirstPool { none, max2, max3 };  // max3: 3x3, stride 2, pad 1

struct FirstParams {
  CUtensorMap image, y;
  const void* x;
  const void* w;  // packed
  const float* bias;
  const float *norm_scale, *norm_shift;
  Strides x_stride;
  Clamp act;
  DType in;
  int c, k, r, s, h, w_in, p, q;
  int stride, pad_top, pad_left;  // pad_left counts the zero taps in front
  FirstLayout at;
  int tiles;              // bricks of the whole batch
  Divisor columns, rows;  // of bricks in an image
};

constexpr int first_threads = 512;  // two warpgroups of consumers, two of producers

// ---------------------------------------------------------------------------------- the image

/// Conv pixel of the first column and row of brick t, and its image.
struct Brick {
  int x, y, n, out_x, out_y;
};
template <FirstPool Pool>
__device__ __forceinline__ Brick brick(const FirstParams& p, int t) {
  Brick b;
  b.out_x = p.columns.reduce(t) * p.at.out_w;
  b.out_y = p.rows.reduce(t) * p.at.out_h;
  b.n = t;
  constexpr int window = Pool == FirstPool::none ? 1 : 2, margin = Pool == FirstPool::max3 ? 1 : 0;
  b.x = b.out_x * window - margin;
  b.y = b.out_y * window - margin;
  return b;
}

template <class T>
struct Pair {
  T v[2][4];  // two pixels, four channels
};

template <class T>
__device__ __forceinline__ float load_scalar(const FirstParams& p, Index i) {
  if (p.in == DType::u8) return static_cast<float>(static_cast<const std::uint8_t*>(p.x)[i]);
  return static_cast<float>(static_cast<const T*>(p.x)[i]);
}

/// Pixels (y, x) and (y, x + 1) of image n; zero outside.
template <class T>
__device__ __forceinline__ Pair<T> load_pair(const FirstParams& p, int n, int y, int x) {
  Pair<T> pair{};
  if (y < 0 || y >= p.h) return pair;
  const Index row = n * p.x_stride.n + y * p.x_stride.h;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (x + i < 0 || x + i >= p.w_in) continue;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (c >= p.c) break;
      float v = load_scalar<T>(p, row + (x + i) * p.x_stride.w + c * p.x_stride.c);
      if (p.norm_scale != nullptr) v = v * p.norm_scale[c] + p.norm_shift[c];
      pair.v[i][c] = static_cast<T>(v);
    }
  }
  return pair;
}

/// Where a pair belongs in the planes; see the top of the file.
template <int Stride>
__device__ __forceinline__ void store_pair(const FirstParams& p, std::uint8_t* row, int pair,
                                           uint4 v) {
  if constexpr (Stride == 1) {
    *reinterpret_cast<uint4*>(row + pair * 16) = v;
    std::uint8_t* odd = row + p.at.plane + pair * 16;
    *reinterpret_cast<uint2*>(odd) = make_uint2(v.z, v.w);
    if (pair > 0) *reinterpret_cast<uint2*>(odd - 8) = make_uint2(v.x, v.y);
  } else {
    *reinterpret_cast<uint4*>(row + (pair & 1) * p.at.plane + (pair >> 1) * 16) = v;
    if ((pair & 1) == 0 && pair > 0)
      *reinterpret_cast<uint4*>(row + 2 * p.at.plane + ((pair >> 1) - 1) * 16) = v;
  }
}

/// The brick through ordinary loads: any strides, u8, normalisation. Loads come in batches before
/// their stores, since the image is far away.
template <class T, FirstPool Pool>
__device__ __forceinline__ void store_brick(const FirstParams& p, int t, std::uint8_t* planes,
                                            int thread) {
  const Brick b = brick<Pool>(p, t);
  const int x0 = b.x * p.stride - p.pad_left, y0 = b.y * p.stride - p.pad_top;
  const int lanes = p.at.pairs <= 16 ? 16 : 32;
  const int pair = thread % lanes, rows = 128 / lanes;
  if (pair >= p.at.pairs) return;
  constexpr int batch = 4;
  for (int first = thread / lanes; first < p.at.brick_rows; first += batch * rows) {
    Pair<T> v[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i)
      v[i] = load_pair<T>(p, b.n, y0 + first + i * rows, x0 + 2 * pair);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int row = first + i * rows;
      if (row >= p.at.brick_rows) continue;
      const uint4 packed = *reinterpret_cast<const uint4*>(&v[i]);
      if (p.stride == 1)
        store_pair<1>(p, planes + row * p.at.pitch, pair, packed);
      else
        store_pair<2>(p, planes + row * p.at.pitch, pair, packed);
    }
  }
}

/// Four channels a pixel from C, a pair at a time: C words.
template <int C>
__device__ __forceinline__ uint4 widen_pair(const std::uint32_t* w) {
  if constexpr (C == 1)
    return make_uint4(w[0] & 0xFFFF, 0, w[0] >> 16, 0);
  else if constexpr (C == 2)
    return make_uint4(w[0], 0, w[1], 0);
  else if constexpr (C == 3)
    return make_uint4(w[0], w[1] & 0xFFFF, w[1] >> 16 | w[2] << 16, w[2] >> 16);
  else
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/// Element of an image row where a brick begins. The copy begins at a multiple of 16 bytes before
/// it.
__device__ __forceinline__ int raw_column(const FirstParams& p, const Brick& b) {
  return (b.x * p.stride - p.pad_left) * p.c;
}

/// From the raw rows to the planes. TMA has put zeros where the image ends.
template <int C, int Stride>
__device__ __forceinline__ void widen_rows(const FirstParams& p, const std::uint8_t* raw,
                                           std::uint8_t* planes, int pair, int first, int step) {
  raw += pair * 4 * C + first * p.at.raw_pitch;
  planes += first * p.at.pitch;
  const int raw_step = step * p.at.raw_pitch, step_bytes = step * p.at.pitch;
#pragma unroll 4
  for (int row = first; row < p.at.brick_rows; row += step, raw += raw_step, planes += step_bytes) {
    store_pair<Stride>(p, planes, pair, widen_pair<C>(reinterpret_cast<const std::uint32_t*>(raw)));
  }
}

template <FirstPool Pool>
__device__ __forceinline__ void convert_raw(const FirstParams& p, int t, const std::uint8_t* raw,
                                            std::uint8_t* planes, int thread) {
  const int lanes = p.at.pairs <= 16 ? 16 : 32, pair = thread % lanes;
  if (pair >= p.at.pairs) return;
  raw += (raw_column(p, brick<Pool>(p, t)) & 7) * 2;
  const auto rows = [&]<int C>() {
    if (p.stride == 1)
      widen_rows<C, 1>(p, raw, planes, pair, thread / lanes, 128 / lanes);
    else
      widen_rows<C, 2>(p, raw, planes, pair, thread / lanes, 128 / lanes);
  };
  switch (p.c) {
    case 1:
      return rows.template operator()<1>();
    case 2:
      return rows.template operator()<2>();
    case 3:
      return rows.template operator()<3>();
    default:
      return rows.template operator()<4>();
  }
}

// ---------------------------------------------------------------------------------- the pools

/// Units of a warpgroup's tile (see Unit): groups of columns are rows of the convolution.
template <int N, FirstPool Pool>
struct FirstUnits {
  static constexpr int rows = N / 8;
  static constexpr int count = Pool == FirstPool::none   ? 2 * rows
                               : Pool == FirstPool::max2 ? rows / 2
                                                         : (rows - 1) / 2;

  static __device__ __forceinline__ Unit value(const float (&d)[2][N / 2], int u) {
    if constexpr (Pool == FirstPool::none) {
      const float(&v)[N / 2] = d[u & 1];
      const int a = 4 * (u >> 1);
      return {{v[a], v[a + 1]}, {v[a + 2], v[a + 3]}};
    } else if constexpr (Pool == FirstPool::max2) {
      const int a = 8 * u, b = a + 4;
      return {{max4(d[0][a], d[1][a], d[0][b], d[1][b]),
               max4(d[0][a + 1], d[1][a + 1], d[0][b + 1], d[1][b + 1])},
              {max4(d[0][a + 2], d[1][a + 2], d[0][b + 2], d[1][b + 2]),
               max4(d[0][a + 3], d[1][a + 3], d[0][b + 3], d[1][b + 3])}};
    } else {
      // Window of output column c: d[0] columns c and c + 1 (left and right), d[1] column c
      // (middle).
      const int a = 8 * u;
      float left[4], middle[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = ptx::max_nan(ptx::max_nan(d[0][a + i], d[0][a + 4 + i]), d[0][a + 8 + i]);
        middle[i] = ptx::max_nan(ptx::max_nan(d[1][a + i], d[1][a + 4 + i]), d[1][a + 8 + i]);
      }
      const float next_low = __shfl_down_sync(0xFFFFFFFF, left[0], 1),
                  next_high = __shfl_down_sync(0xFFFFFFFF, left[2], 1);
      return {{ptx::max_nan(ptx::max_nan(left[0], middle[0]), left[1]),
               ptx::max_nan(ptx::max_nan(left[1], middle[1]), next_low)},
              {ptx::max_nan(ptx::max_nan(left[2], middle[2]), left[3]),
               ptx::max_nan(ptx::max_nan(left[3], middle[3]), next_high)}};
    }
  }
  /// Row in the staged tile; the eighth column of max3 has no window and goes to the spare row.
  static __device__ __forceinline__ int row(int u, int c) {
    if constexpr (Pool == FirstPool::none)
      return (u >> 1) * 16 + 2 * c + (u & 1);
    else if constexpr (Pool == FirstPool::max2)
      return u * 8 + c;
    else
      return c < 7 ? u * 7 + c : count * 7;
  }
};

/// Pixels outside the convolution's plane must not win a window.
template <int N>
__device__ __forceinline__ void mask_outside(const FirstParams& p, const Brick& b,
                                             float (&d)[2][N / 2]) {
  constexpr float never = -INFINITY;
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const bool row = b.y + j >= 0 && b.y + j < p.p;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int x = b.x + 2 * (threadIdx.x % 4 * 2 + (i & 1));
      if (!row || x < 0 || x >= p.q) d[0][4 * j + i] = never;
      if (!row || x + 1 < 0 || x + 1 >= p.q) d[1][4 * j + i] = never;
    }
  }
}

// ---------------------------------------------------------------------------------- producers

constexpr int raw_slots = 4;  // two for each producing warpgroup

/// Each of the two producing warpgroups stores every second brick of this CTA.
template <class T, FirstPool Pool>
__device__ __forceinline__ void first_produce(const FirstParams& p, const std::uint8_t* rows,
                                              std::uint8_t* planes, std::uint32_t full,
                                              std::uint32_t empty, std::uint32_t raw_full, int g) {
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const auto request = [&](int own) {
    const int t = blockIdx.x + (2 * own + g) * gridDim.x, slot = 2 * g + own % 2;
    if (thread != 0 || t >= p.tiles) return;
    const Brick b = brick<Pool>(p, t);
    ptx::mbarrier_arrive_expect(raw_full + 8 * slot, p.at.raw_pitch * p.at.brick_rows);
    ptx::tma_load(ptx::shared_address(rows) + slot * p.at.raw_bytes, &p.image, raw_full + 8 * slot,
                  raw_column(p, b) & ~7, b.y * p.stride - p.pad_top, b.n);
  };
  if (p.at.raw) {
    request(0);
    request(1);
  }
  for (int own = 0;; ++own) {
    const int turn = 2 * own + g, t = blockIdx.x + turn * gridDim.x, slot = turn % p.at.bricks;
    if (t >= p.tiles) return;
    std::uint8_t* to = planes + slot * p.at.brick_bytes;
    ptx::mbarrier_wait(empty + 8 * slot, (turn / p.at.bricks & 1) ^ 1);
    if (p.at.raw) {
      const int raw = 2 * g + own % 2;
      ptx::mbarrier_wait(raw_full + 8 * raw, own / 2 & 1);
      convert_raw<Pool>(p, t, rows + raw * p.at.raw_bytes, to, thread);
    } else {
      store_brick<T, Pool>(p, t, to, thread);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(full + 8 * slot);
    if (p.at.raw) {
      ptx::bar_sync(4 + g, 128);  // all four warps have read the raw rows
      request(own + 2);
    }
  }
}

// ---------------------------------------------------------------------------------- the kernel

template <class T, int N, FirstPool Pool>
__device__ __forceinline__ void first_consume(const FirstParams& p, std::uint32_t planes,
                                              std::uint32_t weights, std::uint32_t staging,
                                              std::uint32_t full, std::uint32_t empty, int g) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool leader = threadIdx.x % 128 == 0;
  const int steps = p.at.slots / 4, block_bytes = p.r * steps * 2048;
  // With one channel block the warpgroups take bricks in turn, else blocks of the same brick.
  const bool by_brick = p.at.k_blocks == 1;
  const std::uint64_t a_base = ptx::plain_descriptor(0, 1024, 128);
  const std::uint64_t b_base = ptx::plain_descriptor(0, p.at.k_stride, p.stride * p.at.pitch);
  int turn = 0;
  for (int t = blockIdx.x; t < p.tiles; t += gridDim.x, ++turn) {
    const int slot = turn % p.at.bricks;
    if (by_brick && turn % 2 != g) continue;
    const Brick b = brick<Pool>(p, t);
    ptx::mbarrier_wait(full + 8 * slot, turn / p.at.bricks & 1);
    const std::uint32_t image = planes + slot * p.at.brick_bytes;
    for (int block = by_brick ? 0 : g; block < p.at.k_blocks; block += by_brick ? 1 : 2) {
      const int channel = block * 64 + 16 * warp + lane / 4;
      float bias[2] = {0.0f, 0.0f};
      if (p.bias != nullptr) {
        if (channel < p.k) bias[0] = p.bias[channel];
        if (channel + 8 < p.k) bias[1] = p.bias[channel + 8];
      }
      float d[2][N / 2];
      ptx::touch(d[0]);
      ptx::touch(d[1]);
      std::uint64_t a = ptx::descriptor(a_base, weights + block * block_bytes);
      std::uint32_t from = image;
      int step = 0, left = p.r * steps, keep = 0;
      do {
        const std::uint64_t b0 = ptx::descriptor(b_base, from),
                            b1 = ptx::descriptor(b_base, from + p.at.plane);
        ptx::wgmma_fence();  // fence and commit in this very block, or the compiler serialises
        ptx::Wgmma<T, N>::mma(d[0], a, b0, keep);
        ptx::Wgmma<T, N>::mma(d[1], a, b1, keep);
        ptx::wgmma_commit();
        keep = 1;
        a += 2048 >> 4;
        from += p.at.step_stride;
        if (++step == steps) {
          step = 0;
          from += p.at.pitch - steps * p.at.step_stride;
        }
      } while (--left > 0);
      ptx::wgmma_wait<0>();
      ptx::touch(d[0]);
      ptx::touch(d[1]);
      if constexpr (Pool == FirstPool::max3) mask_outside<N>(p, b, d);

      if (leader) ptx::bulk_wait_read<0>();
      ptx::bar_sync(1 + g, 128);
      using U = FirstUnits<N, Pool>;
      stage_units<T, U::count>(
          p.act, bias, staging, [&](int u) { return U::value(d, u); },
          [&](int u, int column) { return U::row(u, column); });
      ptx::fence_proxy_async();
      ptx::bar_sync(1 + g, 128);
      if (leader) {
        ptx::tma_store(&p.y, staging, block * 64, b.out_x, b.out_y, b.n);
        ptx::bulk_commit();
      }
    }
    if (lane == 0) ptx::mbarrier_arrive(empty + 8 * slot);
  }
  if (leader) ptx::bulk_wait_read<0>();
}

template <class T, int N, FirstPool Pool>
__global__ void __launch_bounds__(first_threads, 1) first(const __grid_constant__ FirstParams p) {
  extern __shared__ std::uint8_t raw[];
  std::uint8_t* base = raw + (1024 - (ptx::shared_address(raw) & 1023)) % 1024;
  std::uint8_t* planes = base + 2 * p.at.staging;
  std::uint8_t* weights = planes + p.at.bricks * p.at.brick_bytes;
  std::uint8_t* rows = weights + p.at.w_bytes;
  const std::uint32_t full = ptx::shared_address(rows + raw_slots * p.at.raw_bytes),
                      empty = full + 8 * p.at.bricks;
  const std::uint32_t raw_full = empty + 8 * p.at.bricks, w_full = raw_full + 8 * raw_slots;
  const int warpgroup =
      __shfl_sync(0xFFFFFFFF, threadIdx.x / 128, 0);  // so that the compiler sees one value a warp

  if (threadIdx.x == 0) {
    for (int s = 0; s < p.at.bricks; ++s) {
      ptx::mbarrier_init(full + 8 * s, 4);
      ptx::mbarrier_init(empty + 8 * s, p.at.k_blocks == 1 ? 4 : 8);
    }
    for (int s = 0; s <= raw_slots; ++s) ptx::mbarrier_init(raw_full + 8 * s, 1);  // and w_full
    ptx::mbarrier_init_fence();
    ptx::prefetch_tensor_map(&p.y);
  }
  __syncthreads();
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();

  if (warpgroup >= 2) {
    ptx::shrink_registers<80>();
    first_produce<T, Pool>(p, rows, planes, full, empty, raw_full, warpgroup - 2);
  } else {
    ptx::grow_registers<176>();
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect(w_full, p.at.w_bytes);
      ptx::bulk_load(ptx::shared_address(weights), p.w, p.at.w_bytes, w_full);
    }
    ptx::mbarrier_wait(w_full, 0);
    first_consume<T, N, Pool>(p, ptx::shared_address(planes), ptx::shared_address(weights),
                              ptx::shared_address(base) + warpgroup * p.at.staging, full, empty,
                              warpgroup);
  }
}

}  // namespace convoy::cuda::sm90
