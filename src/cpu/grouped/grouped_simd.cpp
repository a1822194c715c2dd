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

// Whether the channels of all pixels have registers of their own beside the sums; else each product
// reads them from L1.
constexpr bool keeps_channels = HWY_ARCH_ARM || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3);

template <bool some>
HWY_INLINE V load_lanes(const float* from, Index count) {
  if constexpr (some) {
    if (count <= 0) return hn::Zero(D());
    if (count < lanes) return load_some(D(), from, count);
  }
  return hn::LoadU(D(), from);
}

// Of a pixel, one vector of them or two.
template <bool two>
struct Channels {
  V vectors[two ? 2 : 1];

  HWY_INLINE Channels() {}  // the compiler's own would lack the target that the vectors need

  template <bool some>
  HWY_INLINE void load(const float* from, Index count) {
    vectors[0] = load_lanes<some>(from, count);
    if constexpr (two) vectors[1] = load_lanes<some>(from + lanes, count - lanes);
  }
};

// Which of the channels each lane takes.
struct Choice {
  explicit HWY_INLINE Choice(const std::int32_t* channel) : index(hn::LoadU(DI(), channel)) {}

  HWY_INLINE V of(const Channels<false>& x) const {
    return hn::TableLookupLanes(x.vectors[0], hn::IndicesFromVec(D(), index));
  }
  HWY_INLINE V of(const Channels<true>& x) const {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    return V{_mm512_permutex2var_ps(x.vectors[0].raw, index.raw, x.vectors[1].raw)};
#else
    const DI di;
    const auto within = hn::IndicesFromVec(D(), hn::And(index, hn::Set(di, lanes - 1)));
    const auto second = hn::RebindMask(D(), hn::Gt(index, hn::Set(di, lanes - 1)));
    return hn::IfThenElse(second, hn::TableLookupLanes(x.vectors[1], within),
                          hn::TableLookupLanes(x.vectors[0], within));
#endif
  }

  hn::Vec<DI> index;
};

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
      Channels<two> x[keeps_channels ? pixels : 1];
      if constexpr (keeps_channels) {
#pragma GCC unroll 8
        for (int i = 0; i < pixels; ++i) x[i].template load<some>(from + i * a.pixel, a.channels);
      }
      for (Index c = 0; c < a.inputs; ++c) {
        const Choice choice(a.channel + c * lanes);
        const V weight = hn::LoadU(d, w + c * lanes);
        // Not read ahead of the loop, where they would fill the stack.
        if constexpr (!keeps_channels) asm volatile("" : "+r"(from));
#pragma GCC unroll 8
        for (int i = 0; i < pixels; ++i) {
          if constexpr (!keeps_channels) x[0].template load<some>(from + i * a.pixel, a.channels);
          sum[i] = hn::MulAdd(choice.of(x[keeps_channels ? i : 0]), weight, sum[i]);
        }
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
