// Rung 3: tiles in shared memory. The warps of a CTA take neighbouring squares; what they read is
// loaded once for all of them.
//
// A CTA owns a tile of outputs. Slice by slice (32 channels of a tap), its threads copy the slice's
// pixels and filters to shared memory, wait for each other, and each warp multiplies its square. Of
// 64x64 outputs a loaded value serves 64, not 16.
//
// From here on a kernel is put together from pieces: how a slice is copied, what a warp multiplies,
// the loop over slices, how sums are written. A rung above brings one new piece, and is otherwise
// the pieces of the rung below.
#pragma once

#include "teaching/ladder/ladder.cuh"

namespace convoy::cuda::teaching {

/// The outputs of a CTA: so many warps down (pixels) and across (filters), each with so many
/// squares down and across; from rung 9 on, so many CTAs on a multiprocessor.
template <int WarpsDown, int WarpsAcross, int Down = 1, int Across = 1, int Ctas = 1>
struct CtaTile {
  static constexpr int warps_across = WarpsAcross, warps = WarpsDown * WarpsAcross;
  static constexpr int down = Down, across = Across, ctas = Ctas;
  static constexpr int threads = warps * warp_size;
  static constexpr int pixels = WarpsDown * Down * side, filters = WarpsAcross * Across * side;
};

/// A slice in shared memory. Rows are 16 bytes longer than what they hold: eight neighbouring rows
/// then begin in different banks, and are read without conflict.
template <class Tile>
struct Slice {
  static constexpr int pitch = slice_depth + 8;
  __half pixels[Tile::pixels][pitch], filters[Tile::filters][pitch];
};

/// NEW: copies slices, with all threads of the CTA, in units of one or several channels. `fetch`
/// loads a thread's units into registers, `store` writes them to shared memory.
template <class Tile, class Unit>
class Copy {
 public:
  __device__ Copy(const LadderParams&, int m, int k) : m_(m), k_(k) {}

  __device__ __forceinline__ void fetch(const LadderParams& g, const Tap& tap, int slice) {
    each<Tile::pixels>([&](int i, int row, int c) {
      pixels_[i] = matrix_at<Unit>(g, m_ + row, tap.r, tap.s, tap.c + c);
    });
    fetch_filters(g, slice);
  }
  __device__ __forceinline__ void store(Slice<Tile>& to) const {
    each<Tile::pixels>(
        [&](int i, int row, int c) { *reinterpret_cast<Unit*>(&to.pixels[row][c]) = pixels_[i]; });
    each<Tile::filters>([&](int i, int row, int c) {
      *reinterpret_cast<Unit*>(&to.filters[row][c]) = filters_[i];
    });
  }

 protected:
  __device__ __forceinline__ void fetch_filters(const LadderParams& g, int slice) {
    each<Tile::filters>([&](int i, int row, int c) {
      filters_[i] = *reinterpret_cast<const Unit*>(g.w + static_cast<Index>(k_ + row) * g.depth() +
                                                   slice * slice_depth + c);
    });
  }
  /// Calls body(i, row, c) for a thread's units of a slice's rows: its i-th begins at channel c.
  /// They lie under each other, so that a thread keeps one row and one channel for all of them.
  template <int Rows, class Body>
  static __device__ __forceinline__ void each(Body body) {
    constexpr int a_row = slice_depth / channels_of<Unit>, rows_at_once = Tile::threads / a_row;
    static_assert(Tile::threads % a_row == 0);
    const int row = static_cast<int>(threadIdx.x / a_row);
    const int c = static_cast<int>(threadIdx.x % a_row) * channels_of<Unit>;
#pragma unroll
    for (int i = 0; i < blocks_of(Rows, rows_at_once); ++i)
      if (Rows % rows_at_once == 0 || row + i * rows_at_once < Rows)
        body(i, row + i * rows_at_once, c);
  }
  static constexpr int units(int rows) {
    return blocks_of(rows * slice_depth / channels_of<Unit>, Tile::threads);
  }

  int m_, k_;
  Unit pixels_[units(Tile::pixels)], filters_[units(Tile::filters)];
};

/// A warp's square of sums.
template <class Tile>
class SquareSums {
 public:
  using Sum = float;
  __device__ SquareSums() { wmma::fill_fragment(sums_, 0.0f); }

  __device__ __forceinline__ void multiply(const Slice<Tile>& slice) {
#pragma unroll
    for (int d = 0; d < slice_depth; d += side) {
      PixelsFragment a;
      FiltersFragment b;
      wmma::load_matrix_sync(a, &slice.pixels[down()][d], slice.pitch);
      wmma::load_matrix_sync(b, &slice.filters[across()][d], slice.pitch);
      wmma::mma_sync(sums_, a, b, sums_);
    }
  }
  template <class Write>
  __device__ __forceinline__ void write(const LadderParams& g, int m, int k, Sum* patch) {
    write_square<Write>(g, m + down(), k + across(), sums_, patch);
  }

 private:
  static __device__ __forceinline__ int warp() {
    return static_cast<int>(threadIdx.x) / warp_size;
  }
  static __device__ __forceinline__ int down() {
    return warp() / Tile::warps_across * side;
  }
  static __device__ __forceinline__ int across() {
    return warp() % Tile::warps_across * side;
  }

  SumsFragment<float> sums_;
};

/// First pixel and filter of a CTA. CTAs that run at the same time share pixels, in the L2.
template <class Tile>
struct Corner {
  int m, k;
  __device__ explicit Corner(const LadderParams& g) {
    const int block = static_cast<int>(blockIdx.x), across = blocks_of(g.k, Tile::filters);
    m = block / across * Tile::pixels;
    k = block % across * Tile::filters;
  }
};

/// After the last slice shared memory is free: each warp has a patch of it to write its sums.
template <class Sum>
__device__ __forceinline__ Sum* patch_of_warp(void* memory) {
  return static_cast<Sum*>(memory) + threadIdx.x / warp_size * side * side;
}

/// NEW: the loop. Copy a slice, wait, multiply, wait.
template <class Tile, template <class> class Sums, class CopyPiece, class Write>
__device__ __forceinline__ void slice_by_slice(const LadderParams& g) {
  extern __shared__ __align__(32) unsigned char memory[];
  auto& slice = *reinterpret_cast<Slice<Tile>*>(memory);
  const Corner<Tile> at(g);
  CopyPiece copy(g, at.m, at.k);
  Sums<Tile> sums;
  int number = 0;
  for (Tap tap; tap.r < g.r; tap.next(g, slice_depth), ++number) {
    copy.fetch(g, tap, number);
    copy.store(slice);
    __syncthreads();  // the slice is complete
    sums.multiply(slice);
    __syncthreads();  // every warp has read it
  }
  sums.template write<Write>(g, at.m, at.k, patch_of_warp<typename Sums<Tile>::Sum>(memory));
}

template <class Tile>
__global__ void ladder_3_shared(const __grid_constant__ LadderParams g) {
  slice_by_slice<Tile, SquareSums, Copy<Tile, __half>, WritePre>(g);
}

}  // namespace convoy::cuda::teaching
