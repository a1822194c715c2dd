// F(4x4, 3x3)'s filters, transformed anew for each block of tiles: rows of U for the GEMMs, and for
// few tiles a GEMM that makes U in registers. Both in the same fp32 arithmetic.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/winograd/winograd_filter.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/winograd/winograd.hpp"
#include "cpu/winograd/winograd_points-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::winograd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A row of U is a filter of three taps in each of the six points. Rows 0 and 5 take the first and
// the last row of W, rows between interpolate its columns at `point`.
struct RowOf {
  float point = 0;  // 0: there is none
  Index taps = 0;   // then the first tap of W's row
};
constexpr RowOf row_of[6] = {{0, 0},       {point_a, 0},  {-point_a, 0},
                             {point_b, 0}, {-point_b, 0}, {0, 6}};

// Three taps of a row of U; w is one of panel's vectors of filters.
template <bool inner>
HWY_INLINE void taps_of(D d, const float* w, V point, V square, V (&taps)[3]) {
#pragma GCC unroll 3
  for (int s = 0; s < 3; ++s) {
    taps[s] = hn::Load(d, w + s * panel);
    if constexpr (inner)
      taps[s] = hn::MulAdd(point, hn::Load(d, w + (3 + s) * panel),
                           hn::MulAdd(square, hn::Load(d, w + (6 + s) * panel), taps[s]));
  }
}

// Calls body(j, u) for each filter of the row.
template <class Body>
HWY_INLINE void each_filter(D d, const V (&taps)[3], const Body& body) {
  body(0, taps[0]);
  body(5, taps[2]);
  const V even_a = hn::MulAdd(F4::factor(d, point_a * point_a), taps[2], taps[0]);
  const V even_b = hn::MulAdd(F4::factor(d, point_b * point_b), taps[2], taps[0]);
  body(1, hn::MulAdd(F4::factor(d, point_a), taps[1], even_a));
  body(2, hn::NegMulAdd(F4::factor(d, point_a), taps[1], even_a));
  body(3, hn::MulAdd(F4::factor(d, point_b), taps[1], even_b));
  body(4, hn::NegMulAdd(F4::factor(d, point_b), taps[1], even_b));
}

template <bool inner>
void filter_row(const float* HWY_RESTRICT w, float at, Index channels, float* HWY_RESTRICT u,
                Index step) {
  const D d;
  const V point = hn::Set(d, at), square = hn::Set(d, at * at);
  for (Index c = 0; c < channels; ++c, w += 9 * panel, u += panel)
#pragma GCC unroll 2
    for (Index part = 0; part < panel; part += lanes) {
      V taps[3];
      taps_of<inner>(d, w + part, point, square, taps);
      each_filter(d, taps,
                  [&](int j, V filter) HWY_ATTR { hn::Store(filter, d, u + j * step + part); });
    }
}

void filter(Index row, const float* w, Index channels, float* u, Index step) {
  const RowOf& of = row_of[row];
  (of.point != 0 ? &filter_row<true> : &filter_row<false>)(w + of.taps * panel, of.point, channels,
                                                           u, step);
}

// A row of U, one vector of filters and a run of channels, against `tiles` tiles. Where v and m
// begin is the row's; the run's first channel is v's.
template <int tiles, bool inner>
HWY_NOINLINE void add_row(const float* HWY_RESTRICT w, float at, Index channels,
                          const float* HWY_RESTRICT v, Index step_v, float* HWY_RESTRICT m,
                          Index step_m, bool first) {
  const D d;
  const V point = hn::Set(d, at), square = hn::Set(d, at * at);
  V acc[6][tiles];
#pragma GCC unroll 6
  for (int j = 0; j < 6; ++j)
#pragma GCC unroll 4
    for (int t = 0; t < tiles; ++t) acc[j][t] = hn::Zero(d);
  for (Index c = 0; c < channels; v += lanes * tiles)
    for (const Index end = std::min(c + lanes, channels); c < end; ++c, w += 9 * panel) {
      const float* pixel = v + (c & (lanes - 1));
      V taps[3];
      taps_of<inner>(d, w, point, square, taps);
      each_filter(d, taps, [&](int j, V filter) HWY_ATTR {
#pragma GCC unroll 4
        for (int t = 0; t < tiles; ++t)
          acc[j][t] = hn::MulAdd(hn::Set(d, pixel[j * step_v + t * lanes]), filter, acc[j][t]);
      });
      asm volatile("" ::: "memory");  // the next channel's loads would find no free register
    }
#pragma GCC unroll 6
  for (int j = 0; j < 6; ++j)
#pragma GCC unroll 4
    for (int t = 0; t < tiles; ++t) {
      float* to = m + j * step_m + t * panel;
      hn::Store(hn::Add(first ? hn::Zero(d) : hn::Load(d, to), acc[j][t]), d, to);
    }
}

using RowFunction = void (*)(const float*, float, Index, const float*, Index, float*, Index, bool);
constexpr RowFunction inner_rows[] = {&add_row<1, true>, &add_row<2, true>, &add_row<3, true>,
                                      &add_row<4, true>};
constexpr RowFunction outer_rows[] = {&add_row<1, false>, &add_row<2, false>, &add_row<3, false>,
                                      &add_row<4, false>};

void multiply_few(const Geometry& g, const Block& block, const float* w, const float* v, float* m,
                  bool half) {
  const Index step_m = m_stride(block.count, panel);
  // The next run's weights, a part of them in each of its rows.
  const Index run_floats = g.run * 9 * panel;
  Ahead ahead{w + run_floats, run_floats / Ahead::line / (half ? 6 : 12)};
  for (Index group = 0; group < block.groups; ++group) {
    const Index begin = block.begin(group), count = block.begin(group + 1) - begin;
    const Index step_v = v_stride(g, lanes, count);
    for (Index c = 0; c < g.c; c += g.run)
      for (Index part = 0; part < (half ? lanes : panel); part += lanes)
        for (Index row = 0; row < 6; ++row) {
          const RowOf& of = row_of[row];
          if (group == 0) ahead.fetch();
          (of.point != 0 ? inner_rows : outer_rows)[count - 1](
              w + (c * 9 + of.taps) * panel + part, of.point, std::min(g.run, g.c - c),
              v + row * 6 * step_v + c * count, step_v, m + row * 6 * step_m + begin * panel + part,
              step_m, c == 0);
        }
    v += g.points * step_v;
  }
}

void fill_filter_of(Simd& simd) {
  simd.filter = &filter;
  simd.multiply_few = &multiply_few;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
  simd.few = 4;  // 24 of 32 registers hold sums
#endif
}

}  // namespace convoy::cpu::winograd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::winograd {

HWY_EXPORT(fill_filter_of);
void fill_filter(Simd& simd) {
  HWY_DYNAMIC_DISPATCH(fill_filter_of)(simd);
}

}  // namespace convoy::cpu::winograd
#endif
