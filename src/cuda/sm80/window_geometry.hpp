// What lies where in the window family's implicit GEMM: rows, chunks of channels, CTAs. Host and
// device.
//
// Rows are output pixels before the pool, numbered window by window: m -> (n, p/2, q/2, dp, dq), so
// that what is pooled lies side by side. The depth is walked in the order S, R, C: a step is one
// tap of a chunk of channels, 64 bytes of each pixel.
#pragma once

#include <cstdint>

#include "math/index_map.hpp"

namespace convoy::cuda::sm80 {

constexpr int chunk_bytes = 64;    // of a row, a step
constexpr int unit_bytes = 16;     // of a row, a copy
constexpr int product_bytes = 32;  // of a row, the depth of one mma
constexpr int chunk_units = chunk_bytes / unit_bytes;
constexpr int block_filters = 32;                        // weights are packed in blocks of these
constexpr int slab_bytes = block_filters * chunk_bytes;  // a block's weights of a step
constexpr int most_taps_along = 32;                      // bits of a mask

/// Division of numbers below 2^31 by one that the host knows: a multiplication on the device. The
/// magic number is the quotient rounded up, of one bit more than the numbers have.
struct FastDivisor {
  std::uint32_t d = 1, magic = std::uint32_t{1} << 31, shift = 0;
  FastDivisor() = default;
  explicit FastDivisor(int by) : d(static_cast<std::uint32_t>(by)) {
    while ((std::uint64_t{1} << shift) < d) ++shift;
    const std::uint64_t wide = std::uint64_t{1} << (31 + shift);
    magic = static_cast<std::uint32_t>((wide + d - 1) / d);
  }
  CONVOY_HD int quotient(int n) const {
    return static_cast<int>((static_cast<std::uint64_t>(static_cast<std::uint32_t>(n)) * magic) >>
                            (31 + shift));
  }
  /// Divides n in place and returns the remainder.
  CONVOY_HD int reduce(int& n) const {
    const int whole = quotient(n), rest = n - whole * static_cast<int>(d);
    n = whole;
    return rest;
  }
};

/// A stage's rows and steps, of the images of a run.
struct WindowGeometry {
  math::ConvAxis<int> rows, columns;
  int r = 1, s = 1;
  int window = 1;            // side of a pooling window, 1 or 2; 1: no pool
  FastDivisor down, across;  // windows of an image
  int m = 0;                 // rows of the GEMM: pixels of all images that the pool takes
  int channel_bytes = 0;     // of a group in a pixel
  Index image = 0, row = 0, pixel = 0;  // distances in x, bytes
  // From a step's place in x to the next one's: another tap in the row, in the next row, the first
  // of the next chunk.
  Index next_s = 0, next_r = 0, next_c = 0;

  /// Of an x whose images, rows and pixels lie so many bytes apart.
  void set_distances(Index image_bytes, Index row_bytes, Index pixel_bytes) {
    image = image_bytes, row = row_bytes, pixel = pixel_bytes;
    next_s = columns.dil * pixel;
    next_r = rows.dil * row - (s - 1) * next_s;
    next_c = chunk_bytes - (r - 1) * rows.dil * row - (s - 1) * next_s;
  }

  /// The pixel of row m of the GEMM, which is below `m`.
  CONVOY_HD math::ConvPixel<int> pixel_of(int index) const {
    const int bits = window - 1, dq = index & bits, dp = index >> bits & bits;
    int n = index >> 2 * bits;
    const int q = across.reduce(n), p = down.reduce(n);
    return {n, (p << bits) + dp, (q << bits) + dq};
  }
  /// The way back; -1: the pool takes no window of the pixel.
  int row_of(const math::ConvPixel<int>& at) const {
    const int bits = window - 1, p = at.p >> bits, q = at.q >> bits;
    const auto high = static_cast<int>(down.d), wide = static_cast<int>(across.d);
    if (p >= high || q >= wide) return -1;
    return (((at.n * high + p) * wide + q) << 2 * bits) + ((at.p & bits) << bits) + (at.q & bits);
  }
};

/// Row of a CTA's tile in shared memory -> which of the tile's GEMM rows lies there. With a pool,
/// 32 rows are eight windows, and the four values of one are eight rows apart: where mma gives them
/// to one thread.
CONVOY_HD int tile_row(int at, bool pooled) {
  return pooled ? (at & ~31) + 4 * (at & 7) + (at >> 3 & 3) : at;
}
/// The way back.
CONVOY_HD int place_of_row(int row, bool pooled) {
  return pooled ? (row & ~31) + (row >> 2 & 7) + 8 * (row & 3) : row;
}

/// Which filter of its block of 32 a row of packed weights holds. Mixed: the eight results of a
/// thread's four products are eight neighbouring channels of a pixel, one store. In order: products
/// of eight neighbouring filters, some of which a block of small groups does without.
CONVOY_HD int filter_of_row(int at, bool in_order) {
  return in_order ? at : (at >> 1 & 3) * 8 + (at >> 3) * 2 + (at & 1);
}
CONVOY_HD int row_of_filter(int filter, bool in_order) {
  return in_order ? filter : (filter >> 1 & 3) * 8 + (filter >> 3) * 2 + (filter & 1);
}

/// Where 16 bytes of a row of 64 lie in shared memory: eight rows read at one unit touch all banks.
CONVOY_HD int swizzled(int row, int unit) {
  return row * chunk_bytes + ((unit ^ (row >> 1 & 3)) << 4);
}

struct CtaPlace {
  int m = 0, n = 0;
  bool operator==(const CtaPlace&) const = default;
};
/// The thread-block swizzle: CTAs, in the order in which they start, go through `panel` neighbours
/// in n before the next in m, so that they find each other's pixels in the L2, and the weights of a
/// panel too.
struct CtaOrder {
  int whole = 0;  // CTAs of the panels that are that wide
  FastDivisor of_panel, panel, last;

  CtaOrder() = default;
  CtaOrder(int m_tiles, int n_tiles, int panel_) : panel(panel_) {
    const int rest = n_tiles % panel_;
    whole = m_tiles * (n_tiles - rest);
    of_panel = FastDivisor(m_tiles * panel_);
    last = FastDivisor(rest > 0 ? rest : panel_);
  }
  CONVOY_HD CtaPlace place(int cta) const {
    int m = cta;
    const int number = of_panel.quotient(cta);
    m -= number * static_cast<int>(of_panel.d);
    const int n = cta < whole ? panel.reduce(m) : last.reduce(m);
    return {m, number * static_cast<int>(panel.d) + n};
  }
  /// The way back, of a launch of so many tiles along m.
  int number(const CtaPlace& at, int m_tiles) const {
    const int wide = static_cast<int>(panel.d), first = at.n / wide * wide;
    const int of_this = first * m_tiles < whole ? wide : static_cast<int>(last.d);
    return first * m_tiles + at.m * of_this + at.n - first;
  }
};

}  // namespace convoy::cuda::sm80
