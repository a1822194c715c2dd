// The loops of `first_winograd2`, compiled once for each instruction set.
#include "cpu/first_winograd2/first_winograd2.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/first_winograd2/first_winograd2_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/shared/epilogue-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::first_winograd2_loops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::add_bias_and_clamp;
using cpu::HWY_NAMESPACE::broadcast;
using cpu::HWY_NAMESPACE::pool_fours;
using cpu::HWY_NAMESPACE::store_results;
constexpr int lanes = HWY_LANES(float);
using D = hn::FixedTag<float, lanes>;
using V = hn::Vec<D>;

// One dimension of the input transform: (d0 - d2, d1 + d2, d2 - d1, d1 - d3). Computed for every
// pixel, not only where tiles begin: whole vectors cost less than picking them apart.
float transform(const float* x, Index row_pitch, Index c, Index tiles, float* v) {
  const D d;
  const Index count = 2 * c * tiles;
  // Magnitudes compared as integers: a NaN is the largest, and none is lost.
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::Set(di, 0x7fffffff);
  auto most = hn::Zero(di);
  for (Index i = 0; i < count; i += lanes) {
    V t[4][4];  // [row of the transform][pixel]
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const float* p = x + i + j * c;
      const V r0 = hn::LoadU(d, p), r1 = hn::LoadU(d, p + row_pitch);
      const V r2 = hn::LoadU(d, p + 2 * row_pitch), r3 = hn::LoadU(d, p + 3 * row_pitch);
      // The other pixels are met as the first of a later tile. (One lane is less than a pixel.)
      if (j == 0 || i + (lanes > 1 ? lanes : c) >= count) {
        const auto bits = [&](V r) HWY_ATTR { return hn::And(hn::BitCast(di, r), magnitude); };
        most = hn::Max(most, hn::Max(hn::Max(bits(r0), bits(r1)), hn::Max(bits(r2), bits(r3))));
      }
      t[0][j] = hn::Sub(r0, r2);
      t[1][j] = hn::Add(r1, r2);
      t[2][j] = hn::Sub(r2, r1);
      t[3][j] = hn::Sub(r1, r3);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      float* to = v + i + 4 * r * piece_floats;
      hn::StoreU(hn::Sub(t[r][0], t[r][2]), d, to);
      hn::StoreU(hn::Add(t[r][1], t[r][2]), d, to + piece_floats);
      hn::StoreU(hn::Sub(t[r][2], t[r][1]), d, to + 2 * piece_floats);
      hn::StoreU(hn::Sub(t[r][1], t[r][3]), d, to + 3 * piece_floats);
    }
  }
  return hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, most)));
}

// sum[i][k] += sign · u · v over the channels of one transformed position.
template <int c, int tiles, int vectors, bool negative>
HWY_INLINE void accumulate(V (&sum)[tiles][vectors], const float* v, const float* u, int position) {
  const D d;
#pragma GCC unroll 4
  for (int j = 0; j < c; ++j) {
    V weight[vectors];
#pragma GCC unroll 2
    for (int k = 0; k < vectors; ++k)
      weight[k] = hn::Load(d, u + ((position * c + j) * vectors + k) * lanes);
#pragma GCC unroll 4
    for (int i = 0; i < tiles; ++i) {
      const V value = broadcast(d, v + position * piece_floats + 2 * c * i + j);
#pragma GCC unroll 2
      for (int k = 0; k < vectors; ++k)
        sum[i][k] = negative ? hn::NegMulAdd(value, weight[k], sum[i][k])
                             : hn::MulAdd(value, weight[k], sum[i][k]);
    }
  }
}

template <int c, int tiles, int vectors>
HWY_INLINE void start(V (&sum)[tiles][vectors], const float* v, const float* u, int position) {
#pragma GCC unroll 4
  for (int i = 0; i < tiles; ++i)
#pragma GCC unroll 2
    for (int k = 0; k < vectors; ++k) sum[i][k] = hn::Zero(D());
  accumulate<c, tiles, vectors, false>(sum, v, u, position);
}

// a, b = a + b, a - b
template <int tiles, int vectors>
HWY_INLINE void cross(V (&a)[tiles][vectors], V (&b)[tiles][vectors]) {
#pragma GCC unroll 4
  for (int i = 0; i < tiles; ++i)
#pragma GCC unroll 2
    for (int k = 0; k < vectors; ++k) {
      const V sum = hn::Add(a[i][k], b[i][k]);
      b[i][k] = hn::Sub(a[i][k], b[i][k]);
      a[i][k] = sum;
    }
}

// Results of tiles from `first` on, o[2 * row + column].
template <int tiles, int vectors>
HWY_INLINE void store_pixels(const PieceArgs& args, V (&o)[4][tiles][vectors], Index first) {
  const D d;
  V bias[vectors];
#pragma GCC unroll 2
  for (int k = 0; k < vectors; ++k) bias[k] = hn::LoadU(d, args.bias + k * lanes);
#pragma GCC unroll 4
  for (int at = 0; at < 4; ++at) add_bias_and_clamp(d, o[at], bias, args.epilogue);
#pragma GCC unroll 4
  for (int i = 0; i < tiles; ++i) {
    const Index tile = first + i;
    const Index columns = tile == args.tiles - 1 ? args.last_columns : 2;
#pragma GCC unroll 4
    for (int at = 0; at < 4; ++at) {
      const int row = at / 2, column = at % 2;
      if (row >= args.rows || column >= columns) continue;
      float* const y = args.y + row * args.row + (2 * tile + column) * args.column;
#pragma GCC unroll 2
      for (int k = 0; k < vectors; ++k)
        store_results(d, o[at][i][k], y + k * lanes, args.valid - k * lanes);
    }
  }
}

// Likewise the maximum of each tile.
template <int tiles, int vectors>
HWY_INLINE void store_pooled(const PieceArgs& args, const V (&o)[4][tiles][vectors], Index first) {
  const D d;
  const auto max = [](V a, V b) HWY_ATTR { return hn::Max(a, b); };
#pragma GCC unroll 4
  for (int i = 0; i < tiles; ++i)
#pragma GCC unroll 2
    for (int k = 0; k < vectors; ++k) {
      V four[4] = {o[0][i][k], o[1][i][k], o[2][i][k], o[3][i][k]};
      store_results(d, pool_fours(d, four, hn::LoadU(d, args.bias + k * lanes), args.epilogue, max),
                    args.y + (first + i) * args.column + k * lanes, args.valid - k * lanes);
    }
}

// The output transform is o = (m0 + m1 + m2, m1 - m2 - m3) in both dimensions. The middle positions
// come first, as sum and difference; the outer ones are then multiplied straight onto them, so that
// only half of the additions of the textbook are left.
template <int c, int tiles, int vectors>
HWY_INLINE void multiply_tiles(const PieceArgs& args, const float* v, Index first) {
  V o[4][tiles][vectors];  // upper row of the tile, lower row
  // Columns 1 and 2 of the transform, position = 4·row + column.
#pragma GCC unroll 2
  for (int column = 1; column <= 2; ++column) {
    V(&upper)[tiles][vectors] = o[column - 1];
    V(&lower)[tiles][vectors] = o[1 + column];
    start<c, tiles, vectors>(upper, v, args.u, 4 + column);
    start<c, tiles, vectors>(lower, v, args.u, 8 + column);
    cross(upper, lower);
    accumulate<c, tiles, vectors, false>(upper, v, args.u, column);
    accumulate<c, tiles, vectors, true>(lower, v, args.u, 12 + column);
  }
  cross(o[0], o[1]);
  cross(o[2], o[3]);
  {
    V upper[tiles][vectors], lower[tiles][vectors];
    start<c, tiles, vectors>(upper, v, args.u, 4);
    start<c, tiles, vectors>(lower, v, args.u, 8);
    cross(upper, lower);
#pragma GCC unroll 4
    for (int i = 0; i < tiles; ++i)
#pragma GCC unroll 2
      for (int k = 0; k < vectors; ++k) {
        o[0][i][k] = hn::Add(o[0][i][k], upper[i][k]);
        o[2][i][k] = hn::Add(o[2][i][k], lower[i][k]);
      }
    accumulate<c, tiles, vectors, false>(o[0], v, args.u, 0);
    accumulate<c, tiles, vectors, true>(o[2], v, args.u, 12);
  }
  {
    V upper[tiles][vectors], lower[tiles][vectors];
    start<c, tiles, vectors>(upper, v, args.u, 7);
    start<c, tiles, vectors>(lower, v, args.u, 11);
    cross(upper, lower);
#pragma GCC unroll 4
    for (int i = 0; i < tiles; ++i)
#pragma GCC unroll 2
      for (int k = 0; k < vectors; ++k) {
        o[1][i][k] = hn::Sub(o[1][i][k], upper[i][k]);
        o[3][i][k] = hn::Sub(o[3][i][k], lower[i][k]);
      }
    accumulate<c, tiles, vectors, true>(o[1], v, args.u, 3);
    accumulate<c, tiles, vectors, false>(o[3], v, args.u, 15);
  }
  if (args.pool)
    store_pooled(args, o, first);
  else
    store_pixels(args, o, first);
}

template <int c, int vectors>
void multiply_piece(const PieceArgs& args) {
  constexpr int together = 2;
  Index tile = 0;
  for (; tile + together <= args.tiles; tile += together)
    multiply_tiles<c, together, vectors>(args, args.v + 2 * c * tile, tile);
  for (; tile < args.tiles; ++tile)
    multiply_tiles<c, 1, vectors>(args, args.v + 2 * c * tile, tile);
}

template <int vectors>
void multiply_vectors(const PieceArgs& args, Index c) {
  if (c == 3) return multiply_piece<3, vectors>(args);
  multiply_piece<4, vectors>(args);
}

#if HWY_ARCH_ARM || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int max_vectors = max_vectors_of(32);
#else
constexpr int max_vectors = max_vectors_of(16);
#endif

void multiply(const PieceArgs& args, Index c, int vectors) {
  if constexpr (max_vectors == 2) {
    if (vectors == 2) return multiply_vectors<2>(args, c);
  }
  multiply_vectors<1>(args, c);
}
}  // namespace

const Loops* all_loops() {
  static constexpr Loops loops{lanes, max_vectors, &transform, &multiply,
                               &cpu::HWY_NAMESPACE::multiply_add_one};
  return &loops;
}
}  // namespace convoy::cpu::first_winograd2_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::first_winograd2_loops {
HWY_EXPORT(all_loops);
const Loops& loops() {
  return *HWY_DYNAMIC_DISPATCH(all_loops)();
}
}  // namespace convoy::cpu::first_winograd2_loops
#endif
