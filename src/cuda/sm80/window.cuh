// window: a convolution as an implicit GEMM of mma.sync, for every GPU since Ampere.
//
// A CTA makes a tile of rows (pixels, window by window) by filters. A ring of slots in shared
// memory is filled by cp.async, a step (a tap of 64 bytes of channels) a slot; warps read them by
// ldmatrix, one 32-byte part of the depth ahead of the products. Summation: chunks of channels,
// taps, parts; it depends on neither tile nor n. Where rows and filters lie in the tile (tile_row,
// filter_of_row) puts a window's four values into one thread, and eight neighbouring channels.
#pragma once

#include "cuda/post_ops.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/sm80/window_iterators.hpp"
#include "cuda/sm80/window_multiply.cuh"
#include "cuda/sm80/window_thread.hpp"
#include "cuda/types.cuh"

namespace convoy::cuda::sm80 {

struct WindowParams {
  WindowSizes at;
  const char* x;  // operands: device pointers
  const char* w;
  char* y;
  Index y_pixel;  // elements
  PostOps post;
  const char* x_end;  // behind x's last element
  int copy;           // bytes that x allows a copy: 16, or of narrow kernels 8, 4 or 2
  int y_store;        // bytes that y allows a store: 16, 4 or 2
};

/// A tile's numbers as the kernel uses them.
template <WindowTile Tile>
struct WindowShape {
  static constexpr int m = Tile.m, n = Tile.n, warp_m = Tile.warp_m, warp_n = Tile.warp_n;
  static constexpr int slots = Tile.slots, threads = Tile.threads(), ctas = Tile.ctas;
  static constexpr bool sparse = Tile.sparse, narrow = Tile.narrow, pairs = Tile.pairs;
  static constexpr int warps_m = m / warp_m;
  static CONVOY_HD constexpr WarpsOfTile warps() { return {warps_m, warp_m, warp_n}; }
  static constexpr int ms = warp_m / 16, ns = warp_n / 8;  // mma instructions of a warp
  static constexpr int slot_bytes = Tile.slot_bytes(), shared_bytes = Tile.shared_bytes();
  static constexpr int copies_m = m * chunk_units / threads, copies_n = n * chunk_units / threads;
  static constexpr bool pools = warp_m % 32 == 0;  // whether a warp's rows are whole windows
  static_assert(warp_m % 16 == 0 && warp_n % 32 == 0, "rows of an mma, and a block of filters");
  static_assert(threads % (block_filters * chunk_units) == 0,
                "threads copy whole blocks of weights");
  static_assert(!sparse || n == block_filters, "what is live is said of one block");
  static_assert(!pairs || (slots % 2 == 0 && !sparse && !narrow), "slots are filled two by two");
};

/// 16 bytes of a pixel that lie on a multiple of 2 or 4, of which the first `valid` are there: the
/// one or two aligned units that hold them, on the way. What of these lies beyond x is not read.
struct Fetched {
  uint4 low, high;
  int places;  // bytes: where in `low` they begin, + 16 times how many there are

  __device__ __forceinline__ void fetch(const char* from, int valid, const char* begin,
                                        const char* end) {
    const int first = static_cast<int>(reinterpret_cast<std::uintptr_t>(from) % unit_bytes);
    places = first + 16 * valid;
    low = high = make_uint4(0, 0, 0, 0);
    if (valid <= 0) return;
    const char* const unit = from - first;
    const bool both = first + valid > unit_bytes;
    if (unit >= begin && unit + (both ? 2 : 1) * unit_bytes <= end) {
      low = reinterpret_cast<const uint4*>(unit)[0];
      if (both) high = reinterpret_cast<const uint4*>(unit)[1];
      return;
    }
    places = 16 * valid;
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto half = [&](int byte) -> std::uint32_t {
        return byte < valid ? *reinterpret_cast<const unsigned short*>(from + byte) : 0;
      };
      words[i] = half(4 * i) | half(4 * i + 2) << 16;
    }
    low = make_uint4(words[0], words[1], words[2], words[3]);
  }
  /// The 16 bytes, zeros behind those that are there.
  __device__ __forceinline__ uint4 get() const {
    const int first = places % 16, valid = places / 16;
    std::uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = (places & 8) != 0 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = (places & 4) != 0 ? w[i + 1] : w[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = __funnelshift_r(w[i], w[i + 1], first % 4 * 8);
    if (valid < unit_bytes) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        w[i] &= valid >= 4 * i + 4 ? 0xffffffffu : valid > 4 * i ? 0xffffu : 0u;
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
  }
};

/// What a thread copies of each step.
template <class T, class Shape, template <int> class Pixels>
class WindowLoads {
 public:
  __device__ __forceinline__ WindowLoads(const WindowParams& p, const WindowCta& cta,
                                         const WindowGeometry& g, const WindowTap* taps,
                                         std::uint32_t shared)
      : p_(p),
        x_(p.x + static_cast<Index>(cta.group) * p.at.groups.channels * sizeof(T)),
        pixels_(g, cta.m + tile_row(static_cast<int>(threadIdx.x) / chunk_units, g.window > 1),
                between_rows, static_cast<int>(threadIdx.x) % chunk_units, taps) {
    const WindowCopies mine(static_cast<int>(threadIdx.x));
    const int first = cta.filter / block_filters + mine.block;
    to_ = shared + mine.to;
    w_ = p.w + (static_cast<Index>(cta.group) * p.at.blocks + first) * p.at.block_bytes +
         mine.in_slab;
    blocks_ = p.at.blocks - first;
  }

  /// The weights of the next step into a slot, in bytes from the first one. They are there before
  /// the kernel before has ended.
  __device__ __forceinline__ void weights(std::uint32_t slot) {
#pragma unroll
    for (int i = 0; i < Shape::copies_n; ++i) weight(i, slot);
    w_ += slab_bytes;
  }
  __device__ __forceinline__ void pixels(std::uint32_t slot, int set = 0) {
    const std::uint32_t to = to_ + slot;
#pragma unroll
    for (int i = 0; i < Shape::copies_m; ++i, ++pixels_) {
      const char* const from = x_ + pixels_.get();
      const std::uint32_t to_row = to + i * between_rows * chunk_bytes;
      if constexpr (!Shape::narrow) {
        ptx::cp_async_16_or_zero(to_row, from, pixels_.valid());
      } else if (p_.copy == 8) {
        const int valid = pixels_.bytes();
#pragma unroll
        for (int b = 0; b < unit_bytes; b += 8)
          ptx::cp_async_or_zero<8>(to_row + b, from + b, min(max(valid - b, 0), 8));
      } else {
        fetched_[set][i].fetch(from, pixels_.bytes(), p_.x, p_.x_end);
      }
    }
    pixels_.advance();
  }
  /// One by one, for copies that stand between products: copy `i` of the next step's weights, or of
  /// its pixels, in their order. Behind the last step all are zeros.
  __device__ __forceinline__ void weight(int i, std::uint32_t slot) {
    ptx::cp_async_16_or_zero(to_ + slot + Shape::m * chunk_bytes + i * between_blocks * slab_bytes,
                             w_ + i * between_blocks * p_.at.block_bytes,
                             i * between_blocks < blocks_);
  }
  __device__ __forceinline__ void pixel(int i, std::uint32_t slot) {
    ptx::cp_async_16_or_zero(to_ + slot + i * between_rows * chunk_bytes, x_ + pixels_.get(),
                             pixels_.valid());
    ++pixels_;
  }
  /// `more`: whether there is a next step.
  __device__ __forceinline__ void end_weights(bool more) {
    w_ += slab_bytes;
    blocks_ = more ? blocks_ : 0;
  }
  __device__ __forceinline__ void end_pixels() {
    pixels_.advance_by_selects();
  }
  /// Of narrow copies those that no cp.async makes: what was fetched last, into its slot.
  __device__ __forceinline__ void put(std::uint32_t slot, int set = 0) {
    if (!Shape::narrow || p_.copy == 8) return;
#pragma unroll
    for (int i = 0; i < Shape::copies_m; ++i)
      ptx::store_shared_16(to_ + slot + i * between_rows * chunk_bytes, fetched_[set][i].get());
  }

 private:
  // Of a thread's copies: whole blocks, whole windows, one swizzle.
  static constexpr int between_blocks = blocks_between(Shape::threads);
  static constexpr int between_rows = rows_between(Shape::threads);

  const WindowParams& p_;
  const char* x_;
  const char* w_;
  int blocks_;
  std::uint32_t to_;
  Pixels<Shape::copies_m> pixels_;
  Fetched fetched_[Shape::slots - 1][Shape::copies_m];  // of narrow ones, by unrolled loops alone
};

/// What a warp reads of a slot: addresses of its lanes' rows.
template <class Shape>
struct WindowReads {
  std::uint32_t a, b;  // of the first slot's first part

  __device__ __forceinline__ explicit WindowReads(std::uint32_t shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int a_row = pixel_row_of(lane, warp, Shape::warps());
    const int b_row = filter_row_of(lane, warp, Shape::warps());
    a = shared + swizzled(a_row, lane >> 4);
    b = shared + Shape::m * chunk_bytes + swizzled(b_row, lane >> 3 & 1);
  }
  static constexpr int count = Shape::ms + Shape::ns / 2;  // of a part
  /// `slot` in bytes from the first one.
  __device__ __forceinline__ void read(std::uint32_t slot, int part,
                                       std::uint32_t (&to_a)[Shape::ms][4],
                                       std::uint32_t (&to_b)[Shape::ns / 2][4]) const {
#pragma unroll
    for (int i = 0; i < count; ++i) read_one(i, slot, part, to_a, to_b);
  }
  /// Number `i` of them.
  __device__ __forceinline__ void read_one(int i, std::uint32_t slot, int part,
                                           std::uint32_t (&to_a)[Shape::ms][4],
                                           std::uint32_t (&to_b)[Shape::ns / 2][4]) const {
    if (const int j = i - Shape::ms; j < 0)
      ptx::ldmatrix_x4(to_a[i], slot + of_part(a, part) + i * 16 * chunk_bytes);
    else
      ptx::ldmatrix_x4(to_b[j], slot + of_part(b, part) + j * 16 * chunk_bytes);
  }
};

/// The tile's sums. On return all copies have arrived and all warps have read what they need.
template <class T, class Shape, template <int> class Pixels, bool Apart>
__device__ __forceinline__ void window_sums(const WindowParams& p, const WindowCta& cta,
                                            const WindowGeometry& g, const WindowTap* taps,
                                            std::uint32_t shared,
                                            Sum<T> (&sums)[Shape::ms][Shape::ns][4]) {
  constexpr int slots = Shape::slots, parts = chunk_bytes / product_bytes;
  static_assert(parts == 2, "the loop below is written out for two");
  const int steps = p.at.steps;
  WindowLoads<T, Shape, Pixels> loads(p, cta, g, taps, shared);
  for (int i = 0; i < slots - 1; ++i)
    if (i < steps) loads.weights(i * Shape::slot_bytes);
  ptx::grid_dependency_wait();
  if constexpr (Shape::narrow) {
#pragma unroll
    for (int i = 0; i < slots - 1; ++i) {
      if (i < steps) loads.pixels(i * Shape::slot_bytes, i);
      ptx::cp_async_commit();
    }
#pragma unroll
    for (int i = 0; i < slots - 1; ++i)
      if (i < steps) loads.put(i * Shape::slot_bytes, i);
  } else {
    for (int i = 0; i < slots - 1; ++i) {
      if (i < steps) loads.pixels(i * Shape::slot_bytes);
      ptx::cp_async_commit();
    }
  }
  ptx::cp_async_wait<slots - 2>();
  __syncthreads();

  const WindowReads<Shape> reads(shared);
  std::uint32_t a[2][Shape::ms][4], b[2][Shape::ns / 2][4];
  reads.read(0, 0, a[0], b[0]);
  // Which products there are in a merged group, by parts of its one or two chunks.
  const int a_chunk = g.r * g.s;
  std::uint32_t to_fill = (slots - 1) * Shape::slot_bytes, slot = 0, fetched = 0;
  std::uint32_t live = p.at.groups.live;
  int left_of_chunk = a_chunk;
  for (int step = 0; step < steps; ++step) {
    reads.read(slot, 1, a[1], b[1]);
    // A step after it was fetched, and two barriers before it is read.
    if (Shape::narrow && step > 0 && step + slots - 2 < steps) loads.put(fetched);
    // The slot that was read last in the step before, and every warp has passed a barrier since.
    if (step + slots - 1 < steps) {
      loads.weights(to_fill);
      loads.pixels(to_fill);
      fetched = to_fill;
    }
    ptx::cp_async_commit();
    multiply<T, Apart>(sums, a[0], b[0],
                       [&](int j) { return !Shape::sparse || (live >> j & 1) != 0; });
    ptx::cp_async_wait<slots - 2>();
    __syncthreads();
    to_fill = slot;
    slot = slot == (slots - 1) * Shape::slot_bytes ? 0 : slot + Shape::slot_bytes;
    if (step + 1 < steps) reads.read(slot, 0, a[0], b[0]);
    multiply<T, Apart>(sums, a[1], b[1],
                       [&](int j) { return !Shape::sparse || (live >> (4 + j) & 1) != 0; });
    if constexpr (Shape::sparse) {
      if (--left_of_chunk == 0) {
        left_of_chunk = a_chunk;
        if (p.at.groups.merged > 1) live >>= 8;
      }
    }
  }
  ptx::cp_async_wait<0>();
  __syncthreads();
}

}  // namespace convoy::cuda::sm80
