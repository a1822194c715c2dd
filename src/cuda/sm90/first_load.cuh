// The producing side of first: from the image in memory to bricks of units in shared memory.
#pragma once

#include "cuda/divide.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/first.hpp"
#include "cuda/sm90/place.hpp"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/warpgroups.cuh"
#include "math/half.hpp"

namespace convoy::cuda::sm90 {

struct FirstParams {
  CUtensorMap image, y, y_without_first;
  const void* x;
  const void* w;  // packed
  const float *norm_scale, *norm_shift;
  Strides x_stride;
  PostOps post;
  DType in;
  int c, r, s, h, w_in, p, q;
  int stride, pad_top, pad_left;  // pad_left counts the zero taps in front
  FirstLayout at;
  int runs;                   // of the whole batch
  Divisor columns, rows;      // of runs in an image
  Divisor units;              // of a brick's row
  int rows_step, units_step;  // 128 units on: whole rows, and the rest
};

/// A walk over the tiles of every `step`-th run.
struct TileWalk {
  int run, step, tile = 0;
  __device__ __forceinline__ void advance(const FirstParams& p) {
    if (++tile == p.at.run) {
      tile = 0;
      run += step;
    }
  }
};

/// The runs that producing warpgroup g takes, from its first on.
__device__ __forceinline__ TileWalk first_tile(int g) {
  return {static_cast<int>(blockIdx.x + g * gridDim.x), static_cast<int>(2 * gridDim.x)};
}

/// Conv pixel of the first column and row of a tile, and its image.
struct Brick {
  int x, y, n, out_x, out_y;
  int skip;  // columns of y that another run gives: 1 or 0
};
template <FirstPool Pool>
__device__ __forceinline__ Brick brick(const FirstParams& p, const TileWalk& at) {
  const Place run = tile_place(at.run, p.columns, p.rows);
  Brick b;
  b.out_x = run.x * p.at.run_pitch + at.tile * p.at.out_w;
  b.out_y = run.y * p.at.out_h;
  b.n = run.n;
  constexpr int window = Pool == FirstPool::none ? 1 : 2, margin = Pool == FirstPool::max3 ? 1 : 0;
  b.x = b.out_x * window;
  b.y = b.out_y * window - margin;
  b.skip = margin == 1 && run.x > 0 && at.tile == 0 ? 1 : 0;
  return b;
}

/// A walk over the units of a brick, row by row: the threads of a warpgroup take every 128th each.
struct UnitWalk {
  int row, unit, left;  // left: units of the brick from this one on
  __device__ __forceinline__ UnitWalk(const FirstParams& p, int thread)
      : row(thread), left(p.at.brick_rows * p.at.units - thread) {
    unit = p.units.reduce(row);
  }
  __device__ __forceinline__ void advance(const FirstParams& p) {
    left -= warpgroup_threads;
    row += p.rows_step;
    unit += p.units_step;
    if (unit >= p.at.units) {
      unit -= p.at.units;
      ++row;
    }
  }
};

template <class T>
struct PixelPair {
  T v[2][4];  // two pixels, four channels: 16 bytes
};

template <class T>
__device__ __forceinline__ float load_scalar(const FirstParams& p, Index i) {
  if (p.in == DType::u8) return static_cast<float>(static_cast<const std::uint8_t*>(p.x)[i]);
  return static_cast<float>(static_cast<const T*>(p.x)[i]);
}

/// Pixels (y, x) and (y, x + 1) of image n; zero outside.
template <class T>
__device__ __forceinline__ PixelPair<T> load_unit(const FirstParams& p, int n, int y, int x) {
  PixelPair<T> unit{};
  if (y < 0 || y >= p.h) return unit;
  const Index row = n * p.x_stride.n + y * p.x_stride.h;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (x + i < 0 || x + i >= p.w_in) continue;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (c >= p.c) break;
      float v = load_scalar<T>(p, row + (x + i) * p.x_stride.w + c * p.x_stride.c);
      if (p.norm_scale != nullptr) v = math::normalise(v, p.norm_scale[c], p.norm_shift[c]);
      unit.v[i][c] = static_cast<T>(v);
    }
  }
  return unit;
}

/// The brick through ordinary loads: any strides, u8, normalisation. Loads come in batches before
/// their stores, since the image is far away.
template <class T, FirstPool Pool>
__device__ __forceinline__ void store_brick(const FirstParams& p, const TileWalk& tile,
                                            std::uint8_t* to, int thread) {
  const Brick b = brick<Pool>(p, tile);
  const int x0 = b.x * p.stride - p.pad_left, y0 = b.y * p.stride - p.pad_top;
  UnitWalk at(p, thread);
  auto* out = reinterpret_cast<uint4*>(to) + thread;
  constexpr int batch = 4;
  while (at.left > 0) {
    PixelPair<T> v[batch];
    const int left = at.left;
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      v[i] = load_unit<T>(p, b.n, at.left > 0 ? y0 + at.row : -1, x0 + p.stride * at.unit);
      at.advance(p);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i, out += warpgroup_threads) {
      if (left > warpgroup_threads * i) *out = *reinterpret_cast<const uint4*>(&v[i]);
    }
  }
}

/// Four channels a pixel from C: two pixels are C words, of which the first begins `odd` halves
/// into w[0].
template <int C>
__device__ __forceinline__ uint4 widen_unit(const std::uint32_t* w, bool odd) {
  std::uint32_t v[C];
#pragma unroll
  for (int i = 0; i < C; ++i)
    v[i] = C % 2 == 1 ? __funnelshift_r(w[i], w[i + 1], odd ? 16 : 0) : w[i];
  if constexpr (C == 1)
    return make_uint4(v[0] & 0xFFFF, 0, v[0] >> 16, 0);
  else if constexpr (C == 2)
    return make_uint4(v[0], 0, v[1], 0);
  else if constexpr (C == 3)
    return make_uint4(v[0], v[1] & 0xFFFF, v[1] >> 16 | v[2] << 16, v[2] >> 16);
  else
    return make_uint4(v[0], v[1], v[2], v[3]);
}

/// Element of an image row where a brick begins. The copy begins at a multiple of 16 bytes before
/// it.
__device__ __forceinline__ int raw_column(const FirstParams& p, const Brick& b) {
  return (b.x * p.stride - p.pad_left) * p.c;
}

/// From the raw rows to units. TMA has put zeros where the image ends.
template <int C, int Stride>
__device__ __forceinline__ void widen_rows(const FirstParams& p, const std::uint8_t* raw,
                                           std::uint8_t* to, int thread) {
  // Odd pixels of an odd C begin in the middle of a word: then one word more is read.
  constexpr bool shifts = C % 2 == 1 && Stride == 1;
  // Batches, so that loads wait for each other but not for stores: the 7x7 brick is one batch.
  constexpr int batch = 6, words = C + (shifts ? 1 : 0);
  auto* out = reinterpret_cast<uint4*>(to) + thread;
  UnitWalk at(p, thread);
  while (at.left > 0) {
    std::uint32_t w[batch][C + 1];
    bool odd[batch];
    const int left = at.left;
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int half = Stride * C * at.unit;
      // Behind the brick's end the first row is read, and not stored.
      const auto* from = reinterpret_cast<const std::uint32_t*>(raw + (at.left > 0 ? at.row : 0) *
                                                                          p.at.raw_pitch) +
                         half / 2;
      odd[i] = shifts && half % 2 == 1;
#pragma unroll
      for (int j = 0; j < words; ++j) w[i][j] = from[j];
      at.advance(p);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i, out += warpgroup_threads) {
      if (left > warpgroup_threads * i) *out = widen_unit<C>(w[i], odd[i]);
    }
  }
}

template <FirstPool Pool>
__device__ __forceinline__ void convert_raw(const FirstParams& p, const TileWalk& tile,
                                            const std::uint8_t* raw, std::uint8_t* to, int thread) {
  raw += (raw_column(p, brick<Pool>(p, tile)) & 7) * 2;
  const auto rows = [&]<int C>() {
    if (p.stride == 1)
      widen_rows<C, 1>(p, raw, to, thread);
    else
      widen_rows<C, 2>(p, raw, to, thread);
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

/// Barriers in shared memory: of the bricks, of the raw rows, whose turn the math is, of the
/// weights.
struct FirstBarriers {
  RingBarriers bricks;
  std::uint32_t raws;
  __device__ __forceinline__ FirstBarriers(std::uint32_t base, int slots)
      : bricks{base, slots}, raws(bricks.end()) {}
  __device__ __forceinline__ std::uint32_t raw(int slot) const {
    return raws + mbarrier_bytes * slot;
  }
  __device__ __forceinline__ std::uint32_t turn(int g) const { return raw(raw_slots + g); }
  __device__ __forceinline__ std::uint32_t weights() const { return raw(raw_slots + 2); }
};

/// The rows of the image that the brick `at` needs, as coordinates of a box for `load`.
template <FirstPool Pool, class Load>
__device__ __forceinline__ void raw_box(const FirstParams& p, const TileWalk& at, Load load) {
  const Brick b = brick<Pool>(p, at);
  load(raw_column(p, b) & ~7, b.y * p.stride - p.pad_top, b.n);
}

/// Brings what the first raw rows of producing warpgroup g will hold to the L2 while the kernel
/// before still runs.
template <FirstPool Pool>
__device__ __forceinline__ void first_prefetch(const FirstParams& p, int g) {
  TileWalk at = first_tile(g);
  for (int i = 0; i < raw_slots / 2 && at.run < p.runs; ++i, at.advance(p))
    raw_box<Pool>(p, at, [&](int x, int y, int n) { ptx::tma_prefetch(&p.image, x, y, n); });
}

/// Each of the two producing warpgroups stores the bricks of every second run of this CTA.
template <class T, FirstPool Pool>
__device__ __forceinline__ void first_produce(const FirstParams& p, const std::uint8_t* rows,
                                              std::uint8_t* bricks, const FirstBarriers& bar,
                                              int g) {
  const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
  TileWalk at = first_tile(g), ahead = at;
  const auto request = [&](int own) {
    const int slot = 2 * g + own % 2;
    const TileWalk wanted = ahead;
    ahead.advance(p);
    if (thread != 0 || wanted.run >= p.runs) return;
    ptx::mbarrier_arrive_expect(bar.raw(slot), p.at.raw_pitch * p.at.brick_rows);
    raw_box<Pool>(p, wanted, [&](int x, int y, int n) {
      ptx::tma_load(ptx::shared_address(rows) + slot * p.at.raw_bytes, &p.image, bar.raw(slot), x,
                    y, n);
    });
  };
  if (p.at.raw) {
    request(0);
    request(1);
  }
  Ring ring{g};
  for (int own = 0; at.run < p.runs; at.advance(p), ++own) {
    std::uint8_t* to = bricks + ring.slot * p.at.brick_bytes;
    ptx::mbarrier_wait(bar.bricks.empty(ring.slot), ring.parity ^ 1);
    if (p.at.raw) {
      const int raw = 2 * g + own % 2;
      ptx::mbarrier_wait(bar.raw(raw), own / 2 & 1);
      convert_raw<Pool>(p, at, rows + raw * p.at.raw_bytes, to, thread);
    } else {
      store_brick<T, Pool>(p, at, to, thread);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(bar.bricks.full(ring.slot));
    ring.advance(p.at.bricks, 2);
    if (p.at.raw) {
      sync_warpgroup(2 + g);  // all four warps have read the raw rows
      request(own + 2);
    }
  }
}

}  // namespace convoy::cuda::sm90
