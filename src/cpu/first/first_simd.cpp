// The loops of `first`, compiled once for each instruction set.
//
// A tile is some neighbouring pixels of a row. A row of weights stays in registers and each input
// is broadcast once for all the taps that meet it: with one channel and few filters it is the loads
// that would set the pace otherwise.
#include "cpu/first/first.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/first/first_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/shared/epilogue-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::first_loops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::add_product;
using cpu::HWY_NAMESPACE::broadcast;
using cpu::HWY_NAMESPACE::finish;
using cpu::HWY_NAMESPACE::larger;
using cpu::HWY_NAMESPACE::one_nan;
using cpu::HWY_NAMESPACE::pool_fours;
using cpu::HWY_NAMESPACE::store_results;
// Eight filters at most: first layers of one channel often have no more, and half vectors lose
// nothing where a core does two of them at once.
constexpr int lanes = row_lanes(HWY_LANES(float));
using D = hn::FixedTag<float, lanes>;
using V = hn::Vec<D>;
// Pixels of a tile, and 2x2 windows of one that pools: with the weights of so many taps of a row
// and an input they fill the registers, of which compilers want one or two for themselves. Eight
// sums just hide a multiply-add's latency, if nothing else comes between; twelve, with the taps of
// a row in two turns, do so with room to spare.
#if HWY_ARCH_ARM || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int max_pixels(int taps) {
  return taps < 7 ? 12 : 9;
}
constexpr int max_windows(int taps) {
  return taps < 7 ? 6 : 5;
}
constexpr int held_taps(int taps, int) {
  return taps;
}
#else
constexpr int max_pixels(int taps) {
  return taps < 7 ? 8 : 6;
}
constexpr int max_windows(int taps) {
  return taps < 7 ? 3 : 2;
}
constexpr int held_taps(int taps, int sums) {
  return sums > 8 ? 3 : taps;
}
#endif

// Results of neighbours.
template <int results>
HWY_INLINE void store_row(const RowArgs& a, const V (&v)[1][results], Index first) {
  const D d;
#pragma GCC unroll 12
  for (int i = 0; i < results; ++i)
    store_results(d, v[0][i], a.y + (first + i) * a.y_pixel, a.valid);
}

// The taps [begin, end) of a row of them.
template <int begin, int end, int rows, int pixels>
HWY_INLINE void row_taps(const RowArgs& a, const float* x, const float* w, V (&sum)[rows][pixels]) {
  const D d;
  V weight[end - begin];
#pragma GCC unroll 7
  for (int s = begin; s < end; ++s) weight[s - begin] = hn::Load(d, w + s * lanes);
#pragma GCC unroll 20
  for (int column = begin; column < pixels + end - 1; ++column) {
#pragma GCC unroll 2
    for (int row = 0; row < rows; ++row) {
      const V value = broadcast(d, x + row * a.row_pitch + column);
      // Ascending columns are ascending taps of each pixel.
#pragma GCC unroll 7
      for (int s = begin; s < end; ++s) {
        const int at = column - s;
        if (at >= 0 && at < pixels) add_product(value, weight[s - begin], sum[row][at]);
      }
      // Else GCC 12 broadcasts inputs long before their turn, and spills sums.
      if constexpr (rows * pixels > 8) asm volatile("" ::: "memory");
    }
  }
}

template <int taps, int rows, int pixels>
HWY_INLINE void sum_rows(const RowArgs& a, const float* x, V (&sum)[rows][pixels]) {
  const D d;
#pragma GCC unroll 2
  for (int row = 0; row < rows; ++row)
#pragma GCC unroll 12
    for (int i = 0; i < pixels; ++i) sum[row][i] = hn::Zero(d);
  const float* w = a.w;
  for (Index r = 0; r < a.r; ++r, x += a.row_pitch, w += taps * lanes) {
    constexpr int held = std::min(taps, held_taps(taps, rows * pixels));
    row_taps<0, held>(a, x, w, sum);
    if constexpr (held < taps) row_taps<held, taps>(a, x, w, sum);
  }
}

template <int taps, int pixels>
void plain(const RowArgs& a, Index first) {
  const D d;
  V sum[1][pixels];
  sum_rows<taps, 1, pixels>(a, a.x + first, sum);
  finish(d, sum, hn::LoadU(d, a.bias), a.epilogue);
  store_row(a, sum, first);
}

template <int taps, int windows>
void pooled(const RowArgs& a, Index first) {
  const D d;
  V sum[2][2 * windows];
  sum_rows<taps, 2, 2 * windows>(a, a.x + 2 * first, sum);
  V four[4][1][windows], most[1][windows];
#pragma GCC unroll 6
  for (int i = 0; i < windows; ++i)
#pragma GCC unroll 4
    for (int at = 0; at < 4; ++at) four[at][0][i] = sum[at / 2][2 * i + at % 2];
  const auto max = [&](V one, V other) HWY_ATTR { return larger(d, one, other); };
  pool_fours(d, four, hn::LoadU(d, a.bias), a.epilogue, max, most);
  one_nan(d, most);
  store_row(a, most, first);
}

using Loop = void (*)(const RowArgs&, Index);
template <int taps, std::size_t... i>
constexpr auto plain_loops(std::index_sequence<i...>) {
  return std::array<Loop, sizeof...(i)>{&plain<taps, static_cast<int>(i + 1)>...};
}
template <int taps, std::size_t... i>
constexpr auto pooled_loops(std::index_sequence<i...>) {
  return std::array<Loop, sizeof...(i)>{&pooled<taps, static_cast<int>(i + 1)>...};
}

// Tiles of equal width, or one more.
template <std::size_t most>
void tiles(const RowArgs& a, const std::array<Loop, most>& loops) {
  const Index count = (a.results + static_cast<Index>(most) - 1) / static_cast<Index>(most);
  const Index size = a.results / count, larger = a.results % count;
  Index at = 0;
  for (Index tile = 0; tile < count; ++tile) {
    const Index now = size + (tile < larger ? 1 : 0);
    loops[static_cast<std::size_t>(now - 1)](a, at);
    at += now;
  }
}

template <int taps>
void row_of(const RowArgs& a) {
  static constexpr auto each = plain_loops<taps>(std::make_index_sequence<max_pixels(taps)>());
  static constexpr auto pool = pooled_loops<taps>(std::make_index_sequence<max_windows(taps)>());
  if (a.pool)
    tiles(a, pool);
  else
    tiles(a, each);
}

void row(const RowArgs& a) {
  if (a.s == 3)
    row_of<3>(a);
  else if (a.s == 5)
    row_of<5>(a);
  else
    row_of<7>(a);
}
}  // namespace

const Loops* all_loops() {
  static constexpr Loops loops{lanes, &row, &cpu::HWY_NAMESPACE::multiply_add_one};
  return &loops;
}
}  // namespace convoy::cpu::first_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::first_loops {
HWY_EXPORT(all_loops);
const Loops& loops() {
  return *HWY_DYNAMIC_DISPATCH(all_loops)();
}
}  // namespace convoy::cpu::first_loops
#endif
