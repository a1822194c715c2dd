// Winograd's minimal filtering for 3x3 filters: what winograd4 and winograd2 share.
//
// With stride 1 an output tile of m x m (m = 4 or 2) needs (m+2)^2 products a channel pair instead
// of 9 m^2. With stride 2, a row of outputs is the sum of two convolutions with stride 1: the even
// inputs with the outer two taps, the odd inputs with the middle tap. F(2, 2) gives two outputs of
// the first for three products, and the second takes one each: a tile of 2x2 needs 25 products
// instead of 36. A run goes over blocks of tiles: transform the block's input to V, multiply with
// the transformed weights U (one GEMM for each of the products xi), transform the products back and
// finish the stage in registers. winograd_transform.cpp and winograd_multiply.cpp have the
// arithmetic, once for each instruction set; winograd_prepared.cpp walks the blocks. The layouts:
//   U [K/panel][filter][C][panel]        zero filters fill the last panel; filter: Geometry::filter
//   V [group][xi][C/lanes][tiles of the group][lanes], 64 bytes of padding after each xi
//   M [xi][tiles of the block][panel], 64 bytes of padding after each xi
// U takes four times the bytes of the weights in F(4x4). With many channels it would be re-read
// from L3 for each block, so there U is made of the weights in each block, a row of some channels
// at a time:
//   W [K/panel][C][9][panel]             the weights, zero filters in the last panel
//   U [n][channels][panel]               64 bytes of padding after each filter
// A group is the register tile's height. Sizes of groups and blocks vary freely: each product is
// summed in the same order whatever its place, so they do not touch the bits. That order: runs of
// `run` ascending channels, each summed from zero, then added up. The rounding of one long sum
// would be most of F(4x4)'s error.
#pragma once

#include <algorithm>

#include "convoy/stage.hpp"
#include "core/kernel.hpp"
#include "cpu/shared/epilogue.hpp"
#include "cpu/shared/post_ops.hpp"
#include "math/divide.hpp"
#include "math/winograd.hpp"

namespace convoy::cpu::winograd {

using math::winograd4::point_a, math::winograd4::point_b;

/// A stage as the kernels see it.
struct Geometry {
  Index h = 0, w = 0, c = 0, k = 0;
  Index p = 0, q = 0, out_h = 0, out_w = 0;
  Index pad_top = 0, pad_left = 0;
  Index m = 0;  // output tile, 2 or 4
  Index tiles_h = 0, tiles_w = 0;
  Index stride = 1;   // 1 or 2
  Index points = 0;   // xi: products of a tile, n x n
  Index n = 0;        // m+2, with stride 2 five
  Index filters = 0;  // distinct ones: with stride 2 each odd input meets the same middle tap
  Index run = 0;      // channels summed before they join the total
  Index slice = 0;    // channels of which U is made at a time; 0: U was made with the weights
  Epilogue epilogue;
  PostOps post;
  bool pool = false;  // max 2x2, stride 2

  Index tiles_an_image() const { return tiles_h * tiles_w; }
  /// Which filter product xi takes.
  Index filter(Index xi) const {
    if (filters == points) return xi;
    return std::min<Index>(xi / n, 3) * 4 + std::min<Index>(xi % n, 3);
  }
};

/// Where a tile lies.
struct Place {
  Index image, row, column;  // row and column of its first output pixel
};
inline Place place_of(const Geometry& g, Index tile) {
  const Index image = tile / g.tiles_an_image(), rest = tile % g.tiles_an_image();
  return {image, rest / g.tiles_w * g.m, rest % g.tiles_w * g.m};
}

/// Tensors of one run.
struct Tensors {
  const float* x = nullptr;
  Strides x_stride;
  const float* weights = nullptr;  // [K,3,3,C], for tiles whose result is not finite
  const float* zeros = nullptr;    // C rounded up to lanes: the pixels outside the image
  const float* bias = nullptr;     // null: none
  float* y = nullptr;
  Strides y_stride;
};

/// Tiles [first, first+count) over all images, cut into groups of nearly equal size.
struct Block {
  Index first = 0, count = 0, groups = 0;

  Block(Index first_, Index count_, Index most)
      : first(first_), count(count_), groups((count_ + most - 1) / most) {}
  Index begin(Index group) const {
    return group * (count / groups) + std::min(group, count % groups);
  }
};

/// Prefetches the next weights into L2 while a loop runs: they are re-read for each block, from L3
/// or memory.
struct Ahead {
  static constexpr Index line = 64 / sizeof(float);
  const float* from = nullptr;
  Index lines = 0;  // each time

  void fetch() {
    for (Index i = 0; i < lines; ++i, from += line) __builtin_prefetch(from, 0, 2);
  }
};

/// Prefetches rows of the next block's pixels, or a part of them, into L2.
struct Pixels {
  const float* from = nullptr;
  Index left = 0;  // floats of this row
  const float* next = nullptr;
  Index row = 0, stride = 0;  // floats of a row, and from one to the next
  Index lines = 0, each = 0;  // still wanted, and in a step

  Pixels() = default;
  /// Part `part` of `parts`, in `steps` steps.
  Pixels(const float* first, Index rows, Index row_, Index stride_, Index part, Index parts,
         Index steps)
      : row(row_), stride(stride_) {
    if (rows <= 0 || row <= 0) return;  // all of them padding
    const Index a_row = (row + Ahead::line - 1) / Ahead::line;
    const Index begin = part * rows * a_row / parts, end = (part + 1) * rows * a_row / parts;
    const float* const at = first + begin / a_row * stride;
    from = at + begin % a_row * Ahead::line;
    left = row - begin % a_row * Ahead::line;
    next = at + stride;
    lines = end - begin;
    each = (lines + steps - 1) / steps;
  }
  void fetch() {
    for (Index i = std::min(each, lines); i > 0; --i, --lines) {
      __builtin_prefetch(from, 0, 2);
      from += Ahead::line, left -= Ahead::line;
      if (left <= 0) from = next, next += stride, left = row;
    }
  }
};

/// U of some channels of a panel and of products [first, last); its filters lie `step` floats
/// apart. `begin` is a multiple of Geometry::run.
struct Slice {
  const float* u = nullptr;
  Index step = 0;
  Index begin = 0, end = 0;  // channels
  Index first = 0, last = 0;
  Ahead ahead;    // each run of channels of a group and a product
  Pixels pixels;  // each group and product
};

/// One instruction set's arithmetic.
struct Simd {
  Index lanes = 0;  // floats of a vector
  Index panel = 0;  // filters of a panel
  /// V of one group: tiles [first, first+count).
  void (*input)(const Geometry&, const Tensors&, Index first, Index count, float* v);
  /// One of the six rows of U of F(4x4), from W, for some channels of a panel; its filters lie
  /// `step` floats apart. Null for other tiles.
  void (*filter)(Index row, const float* w, Index channels, float* u, Index step);
  /// What a slice of channels adds to M of a block and a panel; the first one sets it. `half`: only
  /// the panel's first `panel/2` filters are wanted.
  void (*multiply)(const Geometry&, const Block&, const Slice&, const float* v, float* m,
                   bool half);
  /// All of a block's M of a panel of F(4x4), from W, in groups of `few` tiles at most.
  Index few = 0;  // 0: registers don't suffice
  void (*multiply_few)(const Geometry&, const Block&, const float* w, const float* v, float* m,
                       bool half);
  /// y of a block and a panel, filters [k, min(k+panel, K)).
  void (*output)(const Geometry&, const Tensors&, const Block&, const float* m, Index k);
};

/// The best instruction set of this CPU, for tiles of m x m.
Simd simd(Index m, Index stride);

using math::round_up;
/// Floats between two xi of a group's V.
inline Index v_stride(const Geometry& g, Index lanes, Index tiles) {
  return round_up(g.c, lanes) * tiles + 16;
}
/// Floats between two filters of a slice's U.
inline Index u_stride(const Geometry& g, Index panel) {
  return g.slice * panel + 16;
}
/// Floats between two xi of M.
inline Index m_stride(Index tiles, Index panel) {
  return tiles * panel + 16;
}

Geometry geometry(const Stage& stage, Index m);
/// Tiles of a group, at most.
Index group_tiles(const Geometry& g, const Machine& machine);

/// Whether U of a block of at most `most` tiles is made in registers.
inline bool makes_few(const Geometry& g, const Simd& simd, Index most) {
  return g.slice > 0 && most <= 2 * simd.few;
}

/// How the tiles of a run are cut into blocks.
struct Cut {
  Index tiles = 0, blocks = 0;
  Block block(Index i, Index group) const {
    const Index begin = i * tiles / blocks;
    return {begin, (i + 1) * tiles / blocks - begin, group};
  }
};
/// Blocks of at most `most` tiles. With few of them a thread an uneven number leaves threads idle,
/// so there are as many blocks as a multiple of the threads.
inline Cut cut(Index tiles, Index most, Index threads) {
  Cut cut{tiles, (tiles + most - 1) / most};
  if (cut.blocks > 1 && cut.blocks < 8 * threads)
    cut.blocks = std::min(tiles, round_up(cut.blocks, threads));
  return cut;
}

/// What cut_shared makes of as many tiles, at most.
inline Index most_shared_blocks(Index tiles, Index most, Index threads) {
  return (tiles + most - 1) / most + threads - 1;
}

/// Where threads share V a task is a block and one of `chunks` of the filters, which reads both: as
/// few blocks as leave no thread with a sixteenth more than need be.
inline Cut cut_shared(Index tiles, Index most, Index chunks, Index threads) {
  const Index least = (tiles + most - 1) / most;
  const Index last = std::min(tiles, most_shared_blocks(tiles, most, threads));
  // What the busiest thread does, in tiles times chunks.
  const auto busiest = [&](Index blocks) {
    return ((blocks * chunks + threads - 1) / threads) * ((tiles + blocks - 1) / blocks);
  };
  Index best = busiest(least);
  for (Index blocks = least; blocks <= last; ++blocks) best = std::min(best, busiest(blocks));
  Index blocks = least;
  while (busiest(blocks) > best + best / 16) ++blocks;
  return {tiles, blocks};
}

/// As a tile of the family cuts a run: see `tiles`.
inline Cut cut_by(const Tile& tile, Index tiles, Index most, Index panels, Index threads) {
  return tile.b > 0 ? cut_shared(tiles, most, (panels + tile.b - 1) / tile.b, threads)
                    : cut(tiles, most, threads);
}

/// The weights [K,3,3,C] as U, or as W where g.slice > 0.
void pack(const Geometry& g, Index panel, const float* w, float* to);

/// Of stages without a pool, or whose pool tiles hold.
/// a: tiles of a block, at most. b: 0, a task is a block from x to y; else tasks share the
/// transformed input and each takes b panels of filters.
std::vector<Tile> tiles(const Stage& stage, const Machine& machine, Index m);
Cost cost(const Stage& stage, const Tile& tile, const Machine& machine, Index m);
std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile, const Machine& machine,
                                  Index m);

}  // namespace convoy::cpu::winograd
