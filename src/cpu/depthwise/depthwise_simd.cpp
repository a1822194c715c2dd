// The loops of `depthwise`, compiled once for each instruction set. Vectors hold channels.
#include "cpu/depthwise/depthwise.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise/depthwise_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <utility>

#include "cpu/shared/epilogue-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::depthwise_loops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::finish;
using cpu::HWY_NAMESPACE::Some;
using cpu::HWY_NAMESPACE::Whole;
constexpr int lanes = HWY_LANES(float);
using D = hn::FixedTag<float, lanes>;
using V = hn::Vec<D>;

// taps: of a row, `stride` of them from a pixel to the next; 0 where nothing is known and inputs
// are loaded for each tap.
template <int pixels, int taps, int stride, class Access>
HWY_INLINE void channels(const PixelArgs& a, Index c, const Access& access) {
  const D d;
  V sums[1][pixels];
  V(&sum)[pixels] = sums[0];
#pragma GCC unroll 8
  for (int i = 0; i < pixels; ++i) sum[i] = hn::Zero(d);
  for (Index r = 0; r < a.tap_rows; ++r) {
    const float* x = a.x + r * a.row + c;
    const float* w = a.w + r * a.w_row + c;
    if constexpr (taps > 0) {
      const auto tap = [&](int s) HWY_ATTR { return hn::LoadU(d, w + s * a.w_column); };
      const V weight[] = {tap(0), tap(1), tap(2), tap(taps > 3 ? 3 : 0), tap(taps > 3 ? 4 : 0)};
#pragma GCC unroll 20
      for (int column = 0; column < stride * (pixels - 1) + taps; ++column) {
        const V value = access.load(x + column * a.column);
        // Each pixel that has this column as tap s; ascending columns are ascending taps.
#pragma GCC unroll 5
        for (int s = 0; s < taps; ++s) {
          const int at = column - s;
          if (at >= 0 && at % stride == 0 && at / stride < pixels)
            sum[at / stride] = hn::MulAdd(value, weight[s], sum[at / stride]);
        }
      }
    } else {
      for (Index s = 0; s < a.tap_columns; ++s) {
        const V weight = hn::LoadU(d, w + s * a.w_column);
#pragma GCC unroll 8
        for (int i = 0; i < pixels; ++i)
          sum[i] = hn::MulAdd(access.load(x + s * a.column + i * a.pixel), weight, sum[i]);
      }
    }
  }
  const V bias = hn::LoadU(d, a.bias + c);
  finish(d, sums, bias, a.epilogue);
#pragma GCC unroll 8
  for (int i = 0; i < pixels; ++i) access.store(sum[i], a.y + i * a.y_pixel + c);
}

template <int pixels, int taps, int stride>
void row(const PixelArgs& a) {
  Index c = 0;
  for (; c + lanes <= a.channels; c += lanes) channels<pixels, taps, stride>(a, c, Whole<D>());
  // What lies behind the last channels is another pixel's, and another thread's to write.
  if (c < a.channels) channels<pixels, taps, stride>(a, c, Some<D>{a.channels - c});
}

template <std::size_t... i>
constexpr Loops make_loops(std::index_sequence<i...>) {
  return Loops{
      lanes,
      {&row<static_cast<int>(i + 1), 0, 0>...},
      {{{&row<static_cast<int>(i + 1), 3, 1>...}, {&row<static_cast<int>(i + 1), 3, 2>...}},
       {{&row<static_cast<int>(i + 1), 5, 1>...}, {&row<static_cast<int>(i + 1), 5, 2>...}}}};
}
}  // namespace

const Loops* all_loops() {
  static constexpr Loops loops = make_loops(std::make_index_sequence<max_pixels>());
  return &loops;
}
}  // namespace convoy::cpu::depthwise_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::depthwise_loops {
HWY_EXPORT(all_loops);
const Loops& loops() {
  return *HWY_DYNAMIC_DISPATCH(all_loops)();
}
}  // namespace convoy::cpu::depthwise_loops
#endif
