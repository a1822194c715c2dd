// The loops of `few_filters`, compiled once for each instruction set. Vectors hold channels: a sum
// is a vector of partial sums until its last channel, and few filters leave no lane empty.
#include "cpu/few_filters/few_filters.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/few_filters/few_filters_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <utility>

#include "cpu/shared/epilogue-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::few_filters_loops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::add_bias_and_clamp;
using cpu::HWY_NAMESPACE::add_product;
using cpu::HWY_NAMESPACE::load_some;
using cpu::HWY_NAMESPACE::one_nan;
using cpu::HWY_NAMESPACE::Some;
using cpu::HWY_NAMESPACE::store_results;
using cpu::HWY_NAMESPACE::store_some;
using cpu::HWY_NAMESPACE::Whole;
constexpr int lanes = HWY_LANES(float);
using D = hn::FixedTag<float, lanes>;
using V = hn::Vec<D>;

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int registers = 32;
#else
constexpr int registers = 16;
#endif

// sum[i][k] += x[i][c] w[k], for a vector of channels of one tap. `held`: what is met again in the
// step waits in registers; otherwise weights are loaded for each pixel.
template <int pixels, int filters, bool held, class Access>
HWY_INLINE void step(const float* const (&x)[pixels], Index c, const float* HWY_RESTRICT w,
                     V (&sum)[pixels][filters], const Access& access) {
  const D d;
  if constexpr (!held || filters <= pixels) {
    V weight[filters];
#pragma GCC unroll 8
    for (int k = 0; held && k < filters; ++k) weight[k] = hn::Load(d, w + k * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < pixels; ++i) {
      const V value = access.load(x[i] + c);
#pragma GCC unroll 8
      for (int k = 0; k < filters; ++k)
        add_product(value, held ? weight[k] : hn::Load(d, w + k * lanes), sum[i][k]);
      // GCC 12 would load the next inputs here, where no register is free, and spill weights.
      asm volatile("" ::: "memory");
    }
  } else {
    V value[pixels];
#pragma GCC unroll 8
    for (int i = 0; i < pixels; ++i) value[i] = access.load(x[i] + c);
#pragma GCC unroll 8
    for (int k = 0; k < filters; ++k) {
      const V weight = hn::Load(d, w + k * lanes);
#pragma GCC unroll 8
      for (int i = 0; i < pixels; ++i) add_product(value[i], weight, sum[i][k]);
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
using D4 = hn::FixedTag<float, 4>;
template <class DN>
HWY_INLINE hn::Vec<D4> add_blocks(DN d, hn::Vec<DN> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<DN> half;
    return add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
// The sums of four vectors' lanes.
HWY_INLINE hn::Vec<D4> add_lanes(V a, V b, V c, V e) {
  const D d;
  const hn::RepartitionToWide<D> pairs;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
  return add_blocks(d, hn::Add(hn::BitCast(d, low), hn::BitCast(d, high)));
}
#endif

template <int pixels, int filters>
HWY_INLINE void reduce(const V (&sum)[pixels][filters], float* y) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < pixels; ++i)
    for (int k = 0; k < filters; ++k) y[i * filters + k] = hn::GetLane(sum[i][k]);
#else
  constexpr int count = pixels * filters;
  const D d;
  const D4 d4;
  V all[(count + 3) / 4 * 4];
#pragma GCC unroll 24
  for (int i = 0; i < (count + 3) / 4 * 4; ++i)
    all[i] = i < count ? sum[i / filters][i % filters] : hn::Zero(d);
#pragma GCC unroll 6
  for (int i = 0; i < count; i += 4) {
    const auto four = add_lanes(all[i], all[i + 1], all[i + 2], all[i + 3]);
    if (i + 4 <= count)
      hn::StoreU(four, d4, y + i);
    else
      store_some(d4, four, y + i, count - i);
  }
#endif
}

enum class Inputs { row, rows, listed };

template <int pixels, int filters, Inputs inputs>
void run(const PixelArgs& a) {
  const D d;
  V sum[pixels][filters];
#pragma GCC unroll 8
  for (int i = 0; i < pixels; ++i)
#pragma GCC unroll 8
    for (int k = 0; k < filters; ++k)
      sum[i][k] = a.first ? hn::Zero(d) : hn::LoadU(d, a.sums + (i * filters + k) * lanes);
  const Index whole = a.channels / lanes * lanes;
  for (Index t = 0; t < a.taps; ++t) {
    const float* x[pixels];
#pragma GCC unroll 8
    for (int i = 0; i < pixels; ++i) {
      constexpr int columns = inputs == Inputs::rows ? pixels / 2 : pixels;
      x[i] = inputs == Inputs::listed ? a.x[t * pixels + i]
                                      : a.x[t] + i / columns * a.row + i % columns * a.pixel;
    }
    const float* w = a.w[t];
    Index c = 0;
    // Four vectors make a loop that GCC 12 fits into all registers. One alone it does not, nor one
    // with a mask, which takes a register in AVX2.
    constexpr Index four = 4 * lanes;
    constexpr int used = pixels * filters + (pixels < filters ? pixels : filters) + 1;
    constexpr bool held = used < registers, held_with_mask = used + 1 < registers;
    for (; pixels > 1 && c + four <= whole; c += four)
#pragma GCC unroll 4
      for (Index v = 0; v < four; v += lanes, w += filters * lanes)
        step<pixels, filters, true>(x, c + v, w, sum, Whole<D>());
    for (; c < whole; c += lanes, w += filters * lanes)
      step<pixels, filters, held>(x, c, w, sum, Whole<D>());
    if (c < a.channels)
      step<pixels, filters, held_with_mask>(x, c, w, sum, Some<D>{a.channels - c});
  }
  if (a.last) {
    reduce(sum, a.y);
    return;
  }
#pragma GCC unroll 8
  for (int i = 0; i < pixels; ++i)
#pragma GCC unroll 8
    for (int k = 0; k < filters; ++k) hn::StoreU(sum[i][k], d, a.sums + (i * filters + k) * lanes);
}

// Whether all are numbers and none is infinite.
bool all_finite(const float* y, Index count) {
  const D d;
  V sum = hn::Zero(d);
  Index i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V v = hn::LoadU(d, y + i);
    sum = hn::Add(sum, hn::Sub(v, v));
  }
  if (i < count) {
    const V v = load_some(d, y + i, count - i);
    sum = hn::Add(sum, hn::Sub(v, v));
  }
  return hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}

template <int filters>
void finish_row(float* y, Index count, const float* bias, const Epilogue& epilogue) {
  const D d;
  for (Index i = 0, j = 0; i < count;
       i += lanes, j = j + lanes == filters * lanes ? 0 : j + lanes) {
    const Index left = count - i;
    V sum[1][1] = {{left >= lanes ? hn::LoadU(d, y + i) : load_some(d, y + i, left)}};
    add_bias_and_clamp(d, sum, hn::LoadU(d, bias + j), epilogue);
    store_results(d, one_nan(d, sum[0][0]), y + i, left);
  }
}

template <int pixels, int filters>
constexpr PixelLoop rows_of() {
  if constexpr (pixels % 2 == 0) return &run<pixels, filters, Inputs::rows>;
  return nullptr;
}
template <int filters>
constexpr Loops loops_of() {
  constexpr int pixels = pixels_of(filters, registers);
  return {lanes,
          pixels,
          &run<pixels, filters, Inputs::row>,
          rows_of<pixels, filters>(),
          &run<pixels, filters, Inputs::listed>,
          &run<1, filters, Inputs::row>,
          &all_finite,
          &finish_row<filters>};
}
template <int... i>
const Loops* make_loops(std::integer_sequence<int, i...>) {
  static constexpr Loops loops[] = {loops_of<i + 1>()...};
  return loops;
}
}  // namespace

const Loops* all_loops() {
  return make_loops(std::make_integer_sequence<int, max_filters>());
}
}  // namespace convoy::cpu::few_filters_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::few_filters_loops {
HWY_EXPORT(all_loops);
const Loops& loops(Index filters) {
  return HWY_DYNAMIC_DISPATCH(all_loops)()[filters - 1];
}
}  // namespace convoy::cpu::few_filters_loops
#endif
