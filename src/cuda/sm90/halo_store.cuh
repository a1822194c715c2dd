// From accumulators to memory: which of them make a fragment, where its pixels lie in the staged
// tile, and how that is stored. A pool takes its windows out of one thread's accumulators.
#pragma once

#include <utility>

#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/halo_params.hpp"
#include "cuda/sm90/halo_thread.hpp"

namespace convoy::cuda::sm90 {

/// The rules of a compiled kernel, named where one is broken.
template <int N, int I, PoolKind Pool, int Steps>
concept HaloAccumulator = requires {
  requires N % 8 == 0 && N <= 256;  // the columns that wgmma has
  requires N* I / 2 <= 128;         // registers of the accumulators, of 232 a thread
  requires Steps == 1 || Steps == 2 || Steps == 4;
  requires Pool == PoolKind::none || N % 16 == 0;   // a window is two groups of columns
  requires Pool != PoolKind::images || I % 2 == 0;  // or two rows, which are instructions
};

/// How many fragments a warpgroup's accumulators make, which values one has and where its eight
/// columns lie in the staged tile. A row of pixels in so many time steps is as many groups.
template <class T, int N, int I, PoolKind Pool, int TimeSteps = 1>
requires HaloAccumulator<N, I, Pool, row_steps>
struct Fragments {
  static constexpr int groups = N / 8, pooled = groups / 2;
  static constexpr int per_instruction = Pool == PoolKind::none     ? groups
                                         : Pool == PoolKind::pixels ? (pooled + 1) / 2
                                                                    : pooled;
  static constexpr int count = Pool == PoolKind::images ? I / 2 * pooled : I * per_instruction;

  /// `d` is Sum<T>[I][N / 2], or looks like it.
  template <class Sums>
  static __device__ __forceinline__ Fragment<Sum<T>> value(const Sums& d, int f) {
    const int i = f / per_instruction, j = f % per_instruction;
    if constexpr (Pool == PoolKind::none) {
      return {{d[i][4 * j], d[i][4 * j + 1]}, {d[i][4 * j + 2], d[i][4 * j + 3]}};
    } else if constexpr (Pool == PoolKind::pixels) {
      // Groups are rows of eight pixels: a window is two columns of two neighbouring groups. The
      // fragment's two columns are pooled rows 2j and 2j + 1; the second may not exist.
      const int a = upper(2 * j), b = 2 * j + 1 < pooled ? upper(2 * j + 1) : a;
      constexpr int low = 4 * TimeSteps;  // to the window's second row
      return {{max4(d[i][a], d[i][a + 1], d[i][a + low], d[i][a + low + 1]),
               max4(d[i][b], d[i][b + 1], d[i][b + low], d[i][b + low + 1])},
              {max4(d[i][a + 2], d[i][a + 3], d[i][a + low + 2], d[i][a + low + 3]),
               max4(d[i][b + 2], d[i][b + 3], d[i][b + low + 2], d[i][b + low + 3])}};
    } else {
      // Groups are pixels of a row for eight images, instructions are rows.
      const int a = 8 * j;
      const auto &r = d[2 * i], &s = d[2 * i + 1];
      return {{max4(r[a], r[a + 4], s[a], s[a + 4]), max4(r[a + 1], r[a + 5], s[a + 1], s[a + 5])},
              {max4(r[a + 2], r[a + 6], s[a + 2], s[a + 6]),
               max4(r[a + 3], r[a + 7], s[a + 3], s[a + 7])}};
    }
  }

  /// First accumulator of a pooled row's windows, where the steps of a row follow each other.
  static __device__ __forceinline__ int upper(int row) {
    return 4 * (row / TimeSteps * 2 * TimeSteps + row % TimeSteps);
  }

  /// Row of column `c` of fragment `f`; columns that do not exist go to the spare row behind the
  /// tile.
  static __device__ __forceinline__ int row(const HaloParams& p, int f, int c) {
    const int i = f / per_instruction, j = f % per_instruction;
    if constexpr (Pool == PoolKind::pixels)
      return staged_row_of_pixels(p.at, i, j, c, pooled);
    else
      return staged_row_of_images(p.at, i, j, c);
  }
};

/// How often a warpgroup writes its staging buffer and stores it: for an instruction's pixels, and
/// for its tile.
template <int N, PoolKind Pool>
constexpr int pieces = Pool == PoolKind::none ? store_pieces(N) : 1;
template <int N, int I, PoolKind Pool>
constexpr int store_parts = Pool == PoolKind::none ? I* pieces<N, Pool> : 1;
template <int N, int I>
constexpr bool may_be_half = serves_half({N, I});

/// Pools, adds the bias, activates, rounds once and writes a part of the tile for the TMA store.
template <class T, int N, int I, PoolKind Pool, int Part, int TimeSteps, class Sums>
__device__ __forceinline__ void write_part(const HaloParams& p, const Sums& d,
                                           const float (&bias)[2], std::uint32_t staging) {
  using F = Fragments<T, N, I, Pool, TimeSteps>;
  constexpr int count = F::count / store_parts<N, I, Pool>;
  const auto value = [&](int f) { return F::value(d, Part * count + f); };
  const auto row = [&](int f, int column) {
    return Pool == PoolKind::none ? 8 * f + column : F::row(p, f, column);
  };
  if constexpr (gives_spikes<Sums>) {
    write_spikes<T, count>(staging, value, row);
    return;
  }
  if constexpr (may_be_half<N, I>) {
    if (p.at.half) {
      if (threadIdx.x % warpgroup_threads < warpgroup_threads / 2)
        write_staging<T, count, 32>(p.post, bias, staging, value, row);
      return;
    }
  }
  write_staging<T, count>(p.post, bias, staging, value, row);
}

/// Stores a staged box at channel k of pixels (x, y) of images from n on.
__device__ __forceinline__ void store_box(const HaloParams& p, const Place&, std::uint32_t buffer,
                                          int k, int x, int y, int n) {
  if (p.at.images)
    ptx::tma_store(&p.y, buffer, k, n, x, y);
  else
    ptx::tma_store(&p.y, buffer, k, x, y, n);
}

/// Takes a warpgroup's tile to memory in parts, so many of them pieces of an instruction's pixels:
/// `write<Part>(buffer)` fills a staging buffer, `box(buffer, k, x, y, n)` stores it.
template <int Parts, int Pieces, class Params, class At, class Write, class Box>
__device__ __forceinline__ void store_in_parts(const Params& p, const At& at, std::uint32_t staging,
                                               int g, Write write, Box box) {
  const bool two = p.at.store_buffers == 2;
  const auto store = [&]<int Part>() {
    const std::uint32_t buffer = staging + (two ? Part % 2 * p.at.staging : 0);
    store_staged(
        g, two, [&] { write.template operator()<Part>(buffer); },
        [&] {
          constexpr int i = Part / Pieces, piece = Part % Pieces;
          const int k = at.k + g * p.at.warpgroup_channels, n = at.n + i * p.at.part_n;
          const int x = (at.x + g * p.at.warpgroup_columns) / p.at.window + i * p.at.part_x +
                        piece * p.at.piece_x;
          const int y = (at.y + g * p.at.warpgroup_rows) / p.at.window + i * p.at.part_y +
                        piece * p.at.piece_y;
          box(buffer, k, x, y, n);
        });
  };
  [&]<int... Part>(std::integer_sequence<int, Part...>) {
    (store.template operator()<Part>(), ...);
  }
  (std::make_integer_sequence<int, Parts>{});
}

/// Takes a warpgroup's tile from its accumulators to memory.
template <class T, int N, int I, PoolKind Pool, int TimeSteps = 1, class Params, class Sums,
          class At>
__device__ __forceinline__ void store_tile(const Params& p, const Sums& d, const float (&bias)[2],
                                           const At& at, std::uint32_t staging, int g) {
  store_in_parts<store_parts<N, I, Pool>, pieces<N, Pool>>(
      p, at, staging, g,
      [&]<int Part>(std::uint32_t buffer) {
        write_part<T, N, I, Pool, Part, TimeSteps>(p, d, bias, buffer);
      },
      [&](std::uint32_t buffer, int k, int x, int y, int n) {
        store_box(p, at, buffer, k, x, y, n);
      });
}

}  // namespace convoy::cuda::sm90
