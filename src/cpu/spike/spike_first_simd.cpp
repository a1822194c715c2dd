// The inner loops of the kernel `spike_first`.
#include <algorithm>
#include <cstring>

#include "cpu/spike/spike_first_params.hpp"

// The dot products of AVX-512 VNNI do two thirds of the work in one instruction: ask for them too.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/spike/spike_first_simd.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: this file is compiled once for each instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Params = SpikeFirst::Params;

#if HWY_TARGET == HWY_SCALAR
constexpr int kPixels = 4;
using Pair = std::uint32_t;
HWY_INLINE Pair spread(std::uint32_t pixels) {
  return pixels;
}

/// The weights of a tap pair for eight filters.
struct Weights {
  const std::int16_t* at;
  explicit Weights(const std::int16_t* from) : at(from) {}
};

/// The sums of eight filters for one pixel.
struct Sums {
  std::int32_t lane[8] = {};
  void add_pairs(std::uint32_t pixels, const Weights& w) {
    const auto low = static_cast<std::int32_t>(pixels & 0xffff),
               high = static_cast<std::int32_t>(pixels >> 16);
    for (int k = 0; k < 8; ++k) lane[k] += low * w.at[2 * k] + high * w.at[2 * k + 1];
  }
  void finish() {}
  void maximum(const Sums& other) {
    for (int k = 0; k < 8; ++k) lane[k] = std::max(lane[k], other.lane[k]);
  }
  unsigned above(const std::int32_t* limit) const {
    unsigned bits = 0;
    for (int k = 0; k < 8; ++k) bits |= (lane[k] > limit[k] ? 1U : 0U) << k;
    return bits;
  }
};
#else
using Int = hn::CappedTag<std::int32_t, 8>;
using Short = hn::Repartition<std::int16_t, Int>;
using Vec = hn::Vec<Int>;
constexpr int kLanes = HWY_LANES(std::int32_t) < 8 ? HWY_LANES(std::int32_t) : 8;
constexpr int kVecs = 8 / kLanes;
// Sums that are under way at once: as many as hide the latency of a multiply-add. Four-lane
// targets keep two vectors and, on some, two halves a sum.
constexpr int kPixels = kVecs == 1 ? 8 : 4;
using Pair = hn::Vec<Short>;
HWY_INLINE Pair spread(std::uint32_t pixels) {
  return hn::BitCast(Short(), hn::Set(Int(), static_cast<std::int32_t>(pixels)));
}

/// The weights of a tap pair for eight filters.
struct Weights {
  Pair w[kVecs];
  explicit HWY_INLINE Weights(const std::int16_t* from) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) w[v] = hn::Load(Short(), from + v * 2 * kLanes);
  }
};

/// The sums of eight filters for one pixel.
struct Sums {
  Vec sum[kVecs], rest[kVecs];
  HWY_INLINE Sums() {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[v] = rest[v] = hn::Zero(Int());
  }
  HWY_INLINE void add_pairs(Pair x, const Weights& w) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
#if HWY_TARGET == HWY_AVX3_DL
      // By hand: the intrinsic may become AVX-VNNI's encoding, which some AVX-512 machines lack.
      asm("%{evex%} vpdpwssd %2, %1, %0" : "+v"(sum[v].raw) : "v"(x.raw), "v"(w.w[v].raw));
#else
      sum[v] = hn::ReorderWidenMulAccumulate(Int(), x, w.w[v], sum[v], rest[v]);
#endif
    }
  }
  HWY_INLINE void finish() {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[v] = hn::RearrangeToOddPlusEven(sum[v], rest[v]);
  }
  HWY_INLINE void maximum(const Sums& other) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[v] = hn::Max(sum[v], other.sum[v]);
  }
  HWY_INLINE unsigned above(const std::int32_t* limit) const {
    const Int d;
    unsigned bits = 0;
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      const auto mask = hn::Gt(sum[v], hn::Load(d, limit + v * kLanes));
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
      bits |= static_cast<unsigned>(mask.raw);
#else
      std::uint8_t part[8] = {};
      hn::StoreMaskBits(d, mask, part);
      bits |= static_cast<unsigned>(part[0]) << (v * kLanes);
#endif
    }
    return bits;
  }
};
#endif

HWY_INLINE std::uint32_t load_pair(const void* at) {
  std::uint32_t pair;
  std::memcpy(&pair, at, sizeof pair);
  return pair;
}

/// Widens an image: pairs of a value and the one below it, and single values.
HWY_INLINE void widen(const Params& p, const std::uint8_t* image) {
  const hn::CappedTag<std::uint32_t, 16> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  const Index lanes = static_cast<Index>(hn::Lanes(d)), count = p.image;
  const Index paired = count - p.row;  // the last row has none below
  for (Index i = 0; i < paired; i += lanes) {
    if (i + lanes > paired && paired >= lanes) i = paired - lanes;
    if (i + lanes <= paired) {
      const auto here = hn::PromoteTo(d, hn::LoadU(d8, image + i));
      const auto below = hn::PromoteTo(d, hn::LoadU(d8, image + i + p.row));
      hn::StoreU(hn::Or(here, hn::ShiftLeft<16>(below)), d, p.pairs + i);
    } else {
      for (; i < paired; ++i)
        p.pairs[i] = image[i] | static_cast<std::uint32_t>(image[i + p.row]) << 16;
    }
  }
  if (p.acrosses == 0) return;
  Index i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::PromoteTo(d16, hn::LoadU(d8, image + i)), d16, p.values + i);
  for (; i < count; ++i) p.values[i] = image[i];
  p.values[count] = 0;  // the second half of the very last pair, whose weight is 0
}

/// Sums of kPixels pixels and eight filters. `pixel` counts values of the image.
HWY_INLINE void sum_taps(const Params& p, const std::int16_t* weights,
                         const Index (&pixel)[kPixels], Sums (&sum)[kPixels]) {
  for (Index tap = 0; tap < p.downs; ++tap, weights += 16) {
    const std::uint32_t* at = p.pairs + p.down[tap];
    asm("" : "+r"(at));  // one base register, or each load gets an addition of its own
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) sum[i].add_pairs(spread(at[pixel[i]]), Weights(weights));
  }
  for (Index tap = 0; tap < p.acrosses; ++tap, weights += 16) {
    const std::uint16_t* at = p.values + p.across[tap];
    asm("" : "+r"(at));  // one base register, or each load gets an addition of its own
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i)
      sum[i].add_pairs(spread(load_pair(at + pixel[i])), Weights(weights));
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPixels; ++i) sum[i].finish();
}

#if HWY_TARGET != HWY_SCALAR
/// The same for a block of kPixels pixels, two rows by half as many columns, of a one-channel image
/// with stride 1: a pair of pixel values, once spread over a vector, serves every column whose
/// filter reaches it. kTaps is the filter's width.
template <int kTaps>
HWY_INLINE void sum_block(const Params& p, const std::int16_t* weights, Index first,
                          Sums (&sum)[kPixels]) {
  constexpr int columns = kPixels / 2;
  const auto sum_of = [&](int row, int column) HWY_ATTR -> Sums& {
    return sum[column / 2 * 4 + row * 2 + column % 2];  // windows are 2x2
  };
  for (Index r = 0; r < p.downs; r += kTaps) {
    const std::uint32_t* const at = p.pairs + first + p.down[r];
#pragma GCC unroll 16
    for (int column = 0; column < columns + kTaps - 1; ++column)
#pragma GCC unroll 2
      for (int row = 0; row < 2; ++row) {
        const Pair x = spread(at[row * p.row + column]);
#pragma GCC unroll 4
        for (int to = 0; to < columns; ++to)
          if (column - to >= 0 && column - to < kTaps)
            sum_of(row, to).add_pairs(x, Weights(weights + (column - to) * 16));
      }
    weights += kTaps * 16;
  }
  if (p.acrosses) {
    const std::uint16_t* const at = p.values + first + p.across[0];
    constexpr int pairs = (kTaps + 1) / 2;
#pragma GCC unroll 16
    for (int column = 0; column < columns + 2 * pairs - 2; ++column)
#pragma GCC unroll 2
      for (int row = 0; row < 2; ++row) {
        const Pair x = spread(load_pair(at + row * p.row + column));
#pragma GCC unroll 4
        for (int to = 0; to < columns; ++to)
          if (column - to >= 0 && (column - to) % 2 == 0 && (column - to) / 2 < pairs)
            sum_of(row, to).add_pairs(x, Weights(weights + (column - to) / 2 * 16));
      }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPixels; ++i) sum[i].finish();
}
#endif

/// The spikes of one window and eight filters, from the largest sums in it.
HWY_INLINE void emit(const Params& p, const std::uint8_t* image, Index block, Index row,
                     Index column, const Sums& sum, std::uint8_t* to) {
  const Index at = block * p.steps * 8;
  unsigned fired[2] = {sum.above(p.sure + at), 0},
           open[2] = {sum.above(p.maybe + at) & ~fired[0], 0};
  if (p.steps == 2) {
    fired[1] = sum.above(p.sure + at + 8);
    open[1] = sum.above(p.maybe + at + 8) & ~fired[1];
  }
  if (HWY_UNLIKELY(open[0] | open[1])) {
    for (int t = 0; t < 2; ++t)
      for (; open[t]; open[t] &= open[t] - 1) {
        const int k = __builtin_ctz(open[t]);
        if (p.decide(p.self, image, block * 8 + k, row, column, p.threshold[t]))
          fired[t] |= 1U << k;
      }
  }
  to[0] = static_cast<std::uint8_t>(fired[0]);
  if (p.steps == 2) to[p.out.step] = static_cast<std::uint8_t>(fired[1] & ~fired[0]);
}

// kWindow: pixels of a window, 4 or 1. kTaps: the filter's width where sum_block fits, else 0.
template <int kWindow, int kTaps>
void run_windows(const Params& params) {
  const Params p = params;  // a copy, which the bytes written can't alias
  constexpr int together = kPixels / kWindow;
  for (Index i = 0; i < p.n; ++i) {
    const std::uint8_t* const image = p.images + i * p.image;
    widen(p, image);
    for (Index block = 0; block < p.filter_blocks; ++block) {
      const std::int16_t* const weights = p.weights + block * (p.downs + p.acrosses) * 16;
      for (Index row = 0; row < p.out_h; ++row) {
        std::uint8_t* const to = p.out.data + i * p.out.image + row * p.out.row + block;
        Index first = row * p.window_row;
        for (Index column = 0; column < p.out_w; column += together) {
          Sums sum[kPixels];
          const Index left = p.out_w - column;
#if HWY_TARGET != HWY_SCALAR
          if (kTaps > 0 && left >= together) {
            sum_block<kTaps == 0 ? 1 : kTaps>(p, weights, first, sum);
          } else
#endif
          {
            // Beyond the last window of a row it is computed once more.
            Index pixel[kPixels];
#pragma GCC unroll 8
            for (int j = 0; j < kPixels; ++j)
              pixel[j] = first + std::min<Index>(j / kWindow, left - 1) * p.window_column +
                         (j % kWindow / 2) * p.pixel_row + (j % kWindow % 2) * p.pixel_column;
            sum_taps(p, weights, pixel, sum);
          }
          first += together * p.window_column;
#pragma GCC unroll 8
          for (int j = 0; j < together; ++j) {
#pragma GCC unroll 4
            for (int other = 1; other < kWindow; ++other)
              sum[j * kWindow].maximum(sum[j * kWindow + other]);
            if (j < left)
              emit(p, image, block, row, column + j, sum[j * kWindow],
                   to + (column + j) * p.out.column);
          }
        }
      }
    }
  }
}

void run_images(const Params& p) {
  if (p.pool && p.block_taps == 3) return run_windows<4, 3>(p);
  if (p.pool && p.block_taps == 5) return run_windows<4, 5>(p);
  if (p.pool) return run_windows<4, 0>(p);
  run_windows<1, 0>(p);
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu {

HWY_EXPORT(run_images);

void run_spike_first(const SpikeFirst::Params& p) {
  HWY_DYNAMIC_DISPATCH(run_images)(p);
}

}  // namespace convoy::cpu
#endif
