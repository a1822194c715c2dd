// Winograd's GEMMs: M[xi] = V[xi] U[xi] for a block of tiles and a panel of filters.
//
// For each xi the panel of U stays in L1 while the groups of V are streamed. The
// register tile is a group of tiles x two vectors of filters: it leaves registers for the two
// vectors of U and one broadcast of V, and needs fewer loads than multiply-adds. group_tiles()
// says how many tiles.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/winograd/winograd_multiply.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/shared/vector-inl.hpp"
#include "cpu/winograd/winograd.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::winograd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::add_product;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr Index lanes = hn::MaxLanes(D());
constexpr Index panel = 2 * lanes;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int most_tiles = 12, registers = 32;
#else
constexpr int most_tiles = 6, registers = 16;
#endif

// acc[t][j] += V[c + i][t] U[c + i][j] for i < channels, in this order.
template <int tiles, int vectors, int channels>
HWY_INLINE void accumulate(D d, const float* HWY_RESTRICT u, const float* HWY_RESTRICT v,
                           V (&acc)[tiles][vectors]) {
#pragma GCC unroll 8
  for (int i = 0; i < channels; ++i) {
    V filter[vectors];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) filter[j] = hn::Load(d, u + i * panel + j * lanes);
#pragma GCC unroll 16
    for (int t = 0; t < tiles; ++t) {
      const V pixel = hn::Set(d, v[t * lanes + i]);
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) add_product(pixel, filter[j], acc[t][j]);
    }
    // GCC 12 would move the next channel's loads up here, where no register is free, and spill
    // sums.
    asm volatile("" ::: "memory");
  }
}

// Returns where `ahead` has come to.
template <int tiles, int vectors>
HWY_NOINLINE const float* multiply_group(const float* HWY_RESTRICT u, const float* HWY_RESTRICT v,
                                         const Slice& slice, Index run, float* HWY_RESTRICT m,
                                         Ahead ahead) {
  const D d;
  const Index begin = slice.begin, end = slice.end;
  // Where they fit, the totals stay in registers; else they are added up in M.
  constexpr bool resident = 2 * tiles * vectors + vectors + 1 <= registers;
  V acc[tiles][vectors], total[tiles][vectors];
#pragma GCC unroll 16
  for (int t = 0; t < tiles; ++t)
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j)
      total[t][j] = resident && begin > 0 ? hn::Load(d, m + t * panel + j * lanes) : hn::Zero(d);
  constexpr Index step = lanes == 8 ? 8 : std::min<Index>(lanes, 4);  // divides lanes and run
  for (Index first = begin; first < end; first += run) {
    ahead.fetch();
#pragma GCC unroll 16
    for (int t = 0; t < tiles; ++t)
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) acc[t][j] = hn::Zero(d);
    const Index last = std::min(first + run, end);
    const float* from = v + first * tiles;
    Index i = first;
    for (; i + lanes <= last; i += lanes, from += lanes * tiles)
      for (Index part = 0; part < lanes; part += step, u += step * panel)
        accumulate<tiles, vectors, step>(d, u, from + part, acc);
    for (; i < last; ++i, ++from, u += panel) accumulate<tiles, vectors, 1>(d, u, from, acc);
#pragma GCC unroll 16
    for (int t = 0; t < tiles; ++t)
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) {
        float* to = m + t * panel + j * lanes;
        if constexpr (resident)
          total[t][j] = hn::Add(total[t][j], acc[t][j]);
        else
          hn::Store(first == 0 ? acc[t][j] : hn::Add(hn::Load(d, to), acc[t][j]), d, to);
      }
  }
  if constexpr (resident) {
#pragma GCC unroll 16
    for (int t = 0; t < tiles; ++t)
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) hn::Store(total[t][j], d, m + t * panel + j * lanes);
  }
  return ahead.from;
}

using GroupFunction = const float* (*)(const float*, const float*, const Slice&, Index, float*,
                                       Ahead);
template <int vectors, int... tiles>
GroupFunction pick(Index count, std::integer_sequence<int, tiles...>) {
  constexpr GroupFunction functions[] = {&multiply_group<tiles + 1, vectors>...};
  return functions[count - 1];
}

void multiply(const Geometry& g, const Block& block, const Slice& slice, const float* v, float* m,
              bool half) {
  const Index step_m = m_stride(block.count, panel);
  const std::make_integer_sequence<int, most_tiles> counts;
  // The first groups have one tile more.
  const Index least = block.count / block.groups, larger = block.count % block.groups;
  const auto function = [&](Index count) {
    return half ? pick<1>(count, counts) : pick<2>(count, counts);
  };
  const GroupFunction large = function(std::min<Index>(least + 1, most_tiles));
  const GroupFunction small = function(least);
  Ahead ahead = slice.ahead;
  Pixels pixels = slice.pixels;
  m += slice.first * step_m;
  for (Index xi = slice.first; xi < slice.last; ++xi) {
    const float* filter = slice.u + (g.filter(xi) - g.filter(slice.first)) * slice.step;
    const float* group_v = v;
    float* group_m = m;
    const auto multiply_groups = [&](GroupFunction multiply_one, Index tiles, Index groups) {
      const Index step_v = v_stride(g, lanes, tiles);
      for (Index group = 0; group < groups; ++group) {
        pixels.fetch();
        ahead.from = multiply_one(filter, group_v + xi * step_v, slice, g.run, group_m, ahead);
        group_v += g.points * step_v;
        group_m += tiles * panel;
      }
    };
    multiply_groups(large, least + 1, larger);
    multiply_groups(small, least, block.groups - larger);
    m += step_m;
  }
}

void fill(Simd& simd) {
  simd.lanes = lanes;
  simd.panel = panel;
  simd.multiply = &multiply;
}

}  // namespace convoy::cpu::winograd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::winograd {

HWY_EXPORT(fill);
void fill_multiply(Simd& simd) {
  HWY_DYNAMIC_DISPATCH(fill)(simd);
}

}  // namespace convoy::cpu::winograd
#endif
