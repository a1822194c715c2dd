// Register tiles over channels, for few filters: see channel_loops() in register_tile.hpp.
#include "cpu/register_tile.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/channel_tile.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::channel_tile::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Sixteen sums whatever the vectors are, so that the order does not depend on them: vectors of
// eight take two passes, one for each half of every sixteen channels.
constexpr int sums = 16;
constexpr int lanes = HWY_LANES(float) < sums ? HWY_LANES(float) : sums;
constexpr int passes = sums / lanes;
using D = hn::FixedTag<float, lanes>;
using V = hn::Vec<D>;

// The compiler must not fold the load into each of the multiply-adds that use it: loads would set
// the pace.
HWY_INLINE V load_once(const float* p) {
  auto v = hn::LoadU(D(), p);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  asm volatile("" : "+v"(v.raw));
#endif
  return v;
}

// The tile's sums over one pass, [pixel][filter] vectors.
template <int pixels, int filters>
HWY_INLINE void accumulate(const TileArgs& args, int pass, V (&sum)[pixels][filters]) {
  const D d;
#pragma GCC unroll 16
  for (int i = 0; i < pixels; ++i)
#pragma GCC unroll 4
    for (int k = 0; k < filters; ++k) sum[i][k] = hn::Zero(d);
  // Some channels at a time through all taps: what neighbouring taps share is then still in the
  // first-level cache. (The runs of a tile have one length: a tap's channels, or a row of taps.)
  constexpr Index together = 4 * sums;
  const Index length = args.run_count > 0 ? args.runs[0].length : 0;
  for (Index begin = 0; begin < length; begin += together) {
    const Index end = std::min(begin + together, length);
    for (Index run = 0; run < args.run_count; ++run) {
      const float* HWY_RESTRICT w =
          args.w + (args.runs[run].depth + begin) * filters + pass * lanes;
      const float* HWY_RESTRICT x[pixels];
#pragma GCC unroll 16
      for (int i = 0; i < pixels; ++i)
        x[i] = args.x + args.at[i] + args.runs[run].offset + pass * lanes;
      for (Index c = begin; c < end; c += sums, w += filters * sums) {
        V weight[filters];
#pragma GCC unroll 4
        for (int k = 0; k < filters; ++k) {
          hwy::Prefetch(w + k * sums + together * filters);
          weight[k] = hn::LoadU(d, w + k * sums);
        }
#pragma GCC unroll 16
        for (int i = 0; i < pixels; ++i) {
          // The next channels of this tap: a tile's share of them is too scattered for the
          // hardware to see them coming.
          hwy::Prefetch(x[i] + c + together);
          const V value = load_once(x[i] + c);
#pragma GCC unroll 4
          for (int k = 0; k < filters; ++k) sum[i][k] = hn::MulAdd(value, weight[k], sum[i][k]);
        }
      }
    }
  }
}

float larger(float best, float candidate) {
  return candidate > best || candidate != candidate ? candidate : best;
}

// Sixteen sums to one: halves, quarters, eighths, pairs.
HWY_INLINE float total(float* s) {
  for (int half = sums / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) s[i] += s[i + half];
  return s[0];
}

template <int pixels, int filters, bool pool>
void tile(const TileArgs& args) {
  const D d;
  HWY_ALIGN float partial[pixels * filters][sums];
  for (int pass = 0; pass < passes; ++pass) {
    V sum[pixels][filters];
    accumulate<pixels, filters>(args, pass, sum);
#pragma GCC unroll 16
    for (int i = 0; i < pixels; ++i)
#pragma GCC unroll 4
      for (int k = 0; k < filters; ++k)
        hn::StoreU(sum[i][k], d, partial[i * filters + k] + pass * lanes);
  }
  float result[pixels][filters];
  for (int i = 0; i < pixels; ++i)
    for (int k = 0; k < filters; ++k) {
      float v = total(partial[i * filters + k]) + args.bias[k];
      if (args.clamp.leaky) {
        v = v < 0 ? args.clamp.slope * v : v;
      } else {
        v = v < args.clamp.lo ? args.clamp.lo : v;
        v = v > args.clamp.hi ? args.clamp.hi : v;
      }
      result[i][k] = v;
    }
  for (int i = 0; i < pixels; i += pool ? 4 : 1) {
    float* y = args.y + args.to[pool ? i / 4 : i];
    for (Index k = 0; k < std::min<Index>(filters, args.valid); ++k) {
      float v = result[i][k];
      if constexpr (pool)
        for (int j = 1; j < 4; ++j) v = larger(v, result[i + j][k]);
      y[k] = v;
    }
  }
}

template <int filters, int max_pixels, int max_windows>
void offer(TileLoops& loops) {
  loops.max_pixels[filters] = max_pixels;
  loops.max_windows[filters] = max_windows;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((loops.plain[filters][i + 1] = &tile<static_cast<int>(i + 1), filters, false>), ...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(max_pixels)>());
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((loops.pooled[filters][i + 1] = &tile<static_cast<int>(4 * (i + 1)), filters, true>), ...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(max_windows)>());
}

TileLoops make_loops() {
  TileLoops loops;
  loops.lanes = 1;
  loops.channels = sums;
#if HWY_ARCH_ARM || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
  // 32 registers.
  offer<1, 12, 3>(loops);
  offer<2, 12, 3>(loops);
  offer<3, 8, 2>(loops);
  offer<4, 6, 1>(loops);
#else
  // 16 registers.
  offer<1, 8, 2>(loops);
  offer<2, 6, 1>(loops);
  offer<3, 4, 1>(loops);
#endif
  return loops;
}
}  // namespace

const TileLoops* all_loops() {
  static const TileLoops loops = make_loops();
  return &loops;
}
}  // namespace convoy::cpu::channel_tile::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu {
namespace channel_tile {
HWY_EXPORT(all_loops);
const TileLoops& dispatched() {
  return *HWY_DYNAMIC_DISPATCH(all_loops)();
}
}  // namespace channel_tile

const TileLoops& channel_loops() {
  // The window's maximum is the same whatever a vector holds.
  static const TileLoops loops = [] {
    TileLoops all = channel_tile::dispatched();
    all.window = tile_loops().window;
    return all;
  }();
  return loops;
}
}  // namespace convoy::cpu
#endif
