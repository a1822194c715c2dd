// The loops of `grouped`, compiled once for each instruction set. Vectors hold filters; a
// permutation brings each filter the channel of its own group.
#include "cpu/grouped/grouped.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/grouped/grouped_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <utility>

#include "cpu/shared/epilogue-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::grouped_loops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::finish;
using cpu::HWY_NAMESPACE::load_some;
using cpu::HWY_NAMESPACE::store_results;
constexpr int lanes = HWY_LANES(float);
using D = hn::FixedTag<float, lanes>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;

// Which of the channels each lane takes, of one vector of them or of two.
template <bool two>
struct Choice {
  explicit HWY_INLINE Choice(const std::int32_t* channel) : index(hn::LoadU(DI(), channel)) {}

  HWY_INLINE V of(const V (&x)[1]) const {
    return hn::TableLookupLanes(x[0], hn::IndicesFromVec(D(), index));
  }
  HWY_INLINE V of(const V (&x)[2]) const {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    return V{_mm512_permutex2var_ps(x[0].raw, index.raw, x[1].raw)};
#else
    const DI di;
    const auto within = hn::IndicesFromVec(D(), hn::And(index, hn::Set(di, lanes - 1)));
    const auto second = hn::RebindMask(D(), hn::Gt(index, hn::Set(di, lanes - 1)));
    return hn::IfThenElse(second, hn::TableLookupLanes(x[1], within),
                          hn::TableLookupLanes(x[0], within));
#endif
  }

  hn::Vec<DI> index;
};

template <bool some>
HWY_INLINE V load(const float* from, Index count) {
  if constexpr (some) {
    if (count <= 0) return hn::Zero(D());
    if (count < lanes) return load_some(D(), from, count);
  }
  return hn::LoadU(D(), from);
}

template <int pixels, bool two, bool some>
void run(const PixelArgs& a) {
  const D d;
  V sums[1][pixels];
  V(&sum)[pixels] = sums[0];
#pragma GCC unroll 8
  for (int i = 0; i < pixels; ++i) sum[i] = hn::Zero(d);
  for (Index r = 0; r < a.tap_rows; ++r) {
    for (Index s = 0; s < a.tap_columns; ++s) {
      const float* from = a.x + r * a.row + s * a.column;
      const float* w = a.w + r * a.w_row + s * a.w_column;
      V x[pixels][two ? 2 : 1];
#pragma GCC unroll 8
      for (int i = 0; i < pixels; ++i) {
        x[i][0] = load<some>(from + i * a.pixel, a.channels);
        if constexpr (two) x[i][1] = load<some>(from + i * a.pixel + lanes, a.channels - lanes);
      }
      for (Index c = 0; c < a.inputs; ++c) {
        const Choice<two> choice(a.channel + c * lanes);
        const V weight = hn::LoadU(d, w + c * lanes);
#pragma GCC unroll 8
        for (int i = 0; i < pixels; ++i) sum[i] = hn::MulAdd(choice.of(x[i]), weight, sum[i]);
      }
    }
  }
  finish(d, sums, hn::LoadU(d, a.bias), a.epilogue);
#pragma GCC unroll 8
  for (int i = 0; i < pixels; ++i) store_results(d, sum[i], a.y + i * a.y_pixel, a.filters);
}

template <std::size_t... i>
constexpr Loops make_loops(std::index_sequence<i...>) {
  return Loops{lanes,
               {&run<static_cast<int>(i + 1), false, false>...},
               {&run<static_cast<int>(i + 1), true, false>...},
               {&run<static_cast<int>(i + 1), false, true>...},
               {&run<static_cast<int>(i + 1), true, true>...}};
}
}  // namespace

const Loops* all_loops() {
  static constexpr Loops loops = make_loops(std::make_index_sequence<max_row_pixels>());
  return &loops;
}
}  // namespace convoy::cpu::grouped_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::grouped_loops {
HWY_EXPORT(all_loops);
const Loops& loops() {
  return *HWY_DYNAMIC_DISPATCH(all_loops)();
}
}  // namespace convoy::cpu::grouped_loops
#endif
