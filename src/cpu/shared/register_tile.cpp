#include "cpu/shared/register_tile.hpp"

#include "core/machine.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/shared/register_tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "cpu/shared/epilogue-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int lanes = HWY_LANES(float);
#if HWY_ARCH_ARM || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int registers = 32;
#else
constexpr int registers = 16;
#endif
template <class D, int vectors>
HWY_INLINE void store_block(D d, const hn::Vec<D> (&v)[vectors], float* to, Index valid) {
  const Index n = static_cast<Index>(hn::MaxLanes(d));
  if (valid == vectors * n) {
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) hn::StoreU(v[i], d, to + i * n);
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < vectors; ++i) store_results(d, v[i], to + i * n, valid - i * n);
}

// Where the pixels of a tile lie: anywhere, a pointer each. Pointers that a run begins at would be
// worked out again for each: an index serves them all.
template <int pixels>
class Scattered {
 public:
  // Channels a turn of the loop. With 512 bits more are no faster.
  static constexpr Index unrolled = HWY_TARGET == HWY_AVX2 ? 4 : 1;

  explicit HWY_INLINE Scattered(const TileArgs& args) {
#pragma GCC unroll 16
    for (int i = 0; i < pixels; ++i) x_[i] = args.x + args.at[i];
  }
  template <class Body>
  HWY_INLINE void each(Index c, const Body& body) const {
#pragma GCC unroll 16
    for (int i = 0; i < pixels; ++i) body(i, x_[i] + c);
  }

 private:
  const float* x_[pixels];
};

// Or at one pitch: x86 scales an index by 1, 2, 4 and 8, so that p, 3p and 5p reach six pixels from
// one pointer, and no pointer is kept in a vector register for want of others.
template <int pixels>
class Pitched {
 public:
  static constexpr Index unrolled = 1;  // of more GCC 12 spills

  explicit HWY_INLINE Pitched(const TileArgs& args)
      : x_(reinterpret_cast<const char*>(args.x)),
        once_(args.x_pitch * static_cast<Index>(sizeof(float))),
        thrice_(3 * once_),
        five_times_(5 * once_) {
    asm("" : "+r"(thrice_), "+r"(five_times_));  // not to be worked out again
  }
  HWY_INLINE void advance() { x_ += pixels * once_; }
  template <class Body>
  HWY_INLINE void each(Index c, const Body& body) const {
    const char* six = x_ + c * static_cast<Index>(sizeof(float));
#pragma GCC unroll 16
    for (int i = 0; i < pixels; ++i) {
      if (i > 0 && i % 6 == 0) six += 2 * thrice_;
      asm("" : "+r"(six));  // nor a pointer for each pixel
      const Index of_six[] = {0, once_, 2 * once_, thrice_, 4 * once_, five_times_};
      body(i, reinterpret_cast<const float*>(six + of_six[i % 6]));
    }
  }

 private:
  const char* x_;
  Index once_, thrice_, five_times_;
};

template <class D, int pixels, int vectors, class Pixels>
HWY_INLINE void multiply_add(D d, const Pixels& x, Index c, const float* w,
                             hn::Vec<D> (&sum)[pixels][vectors]) {
  hn::Vec<D> weight[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v)
    weight[v] = hn::Load(d, w + v * static_cast<Index>(hn::MaxLanes(d)));
  x.each(c, [&](int i, const float* at) HWY_ATTR {
    const auto value = broadcast(d, at);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      if constexpr (Pixels::unrolled > 1)
        add_product(value, weight[v], sum[i][v]);
      else
        sum[i][v] = hn::MulAdd(value, weight[v], sum[i][v]);
  });
}

// All taps and channels.
template <class D, int pixels, int vectors, class Pixels>
HWY_INLINE void add_products(D d, const TileArgs& args, const Pixels& x, const float*& ahead,
                             hn::Vec<D> (&sum)[pixels][vectors]) {
  constexpr int n = static_cast<int>(hn::MaxLanes(D()));
  const auto fetch = [&] {
    for (Index line = 0; line < args.ahead_lines; ++line, ahead += 16)
      __builtin_prefetch(ahead, 0, 2);
  };
  if (args.offsets) {
    fetch();
    const float* w = args.w;
    const Index* const end = args.offsets + args.depth;
    for (const Index* c = args.offsets; c != end; ++c, w += n * vectors)
      multiply_add<D, pixels, vectors>(d, x, *c, w, sum);
  }
  const float* next = args.next;
  for (Index run = 0; run < args.run_count; ++run) {
    fetch();
    const Index end = args.runs[run].offset + args.runs[run].length;
    const float* w = args.w + args.runs[run].depth * (n * vectors);
    Index c = args.runs[run].offset;
    constexpr Index step = Pixels::unrolled;
    const auto add_step = [&]() HWY_ATTR {
#pragma GCC unroll 4
      for (Index i = 0; i < step; ++i)
        multiply_add<D, pixels, vectors>(d, x, c + i, w + i * n * vectors, sum);
    };
    if constexpr (vectors >= 3)
      if (next)
        for (; c + step <= end; c += step, w += step * n * vectors) {
#pragma GCC unroll 4
          for (Index i = 0; i < step; ++i, next += args.next_floats) __builtin_prefetch(next, 0, 2);
          add_step();
        }
    for (; c + step <= end; c += step, w += step * n * vectors) add_step();
    for (; c < end; ++c, w += n * vectors) multiply_add<D, pixels, vectors>(d, x, c, w, sum);
  }
}

template <class D, int vectors>
HWY_INLINE void load_bias(D d, const TileArgs& args, hn::Vec<D> (&bias)[vectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v)
    bias[v] = hn::LoadU(d, args.bias + v * static_cast<Index>(hn::MaxLanes(d)));
}

template <class D, int pixels, int vectors, bool pool>
void tile(const TileArgs& args) {
  const D d;
  constexpr int n = static_cast<int>(hn::MaxLanes(D()));
  hn::Vec<D> sum[pixels][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < pixels; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      sum[i][v] = args.resume ? hn::Load(d, args.sums + (i * vectors + v) * n) : hn::Zero(d);
  // Results would wait for their lines where they are many.
  if constexpr (!pool)
    if (!args.suspend)
#pragma GCC unroll 16
      for (int i = 0; i < pixels; ++i)
        for (int v = 0; v < vectors; ++v)
          __builtin_prefetch(args.y + args.next_to[i] + v * n, 1, 2);
  const float* ahead = args.ahead;
  add_products<D, pixels, vectors>(d, args, Scattered<pixels>(args), ahead, sum);
  if (args.suspend) {
#pragma GCC unroll 16
    for (int i = 0; i < pixels; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) hn::Store(sum[i][v], d, args.sums + (i * vectors + v) * n);
    return;
  }
  if constexpr (pool) {
    const auto max = [&](hn::Vec<D> a, hn::Vec<D> b) HWY_ATTR { return larger(d, a, b); };
    pool_fours(d, sum, args.bias, args.epilogue, max);
#pragma GCC unroll 16
    for (int i = 0; i < pixels; i += 4) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] = one_nan(d, sum[i][v]);
      store_block<D, vectors>(d, sum[i], args.y + args.to[i / 4], args.valid);
    }
  } else {
    hn::Vec<D> bias[vectors];
    load_bias(d, args, bias);
    finish(d, sum, bias, args.epilogue);
#pragma GCC unroll 16
    for (int i = 0; i < pixels; ++i)
      store_block<D, vectors>(d, sum[i], args.y + args.to[i], args.valid);
  }
}

template <class D, int pixels, int vectors>
void row(const TileArgs& args, Index tiles) {
  const D d;
  constexpr int n = static_cast<int>(hn::MaxLanes(D()));
  Pitched<pixels> x(args);
  const float* ahead = args.ahead;
  float* y = args.y;
  for (Index done = 0; done < tiles; ++done, x.advance()) {
    hn::Vec<D> sum[pixels][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < pixels; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] = hn::Zero(d);
    const Index step = args.y_pitch;
#pragma GCC unroll 16
    for (int i = 0; i < pixels; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) __builtin_prefetch(y + i * step + v * n, 1, 3);
    add_products<D, pixels, vectors>(d, args, x, ahead, sum);
    hn::Vec<D> bias[vectors];
    load_bias(d, args, bias);
    finish(d, sum, bias, args.epilogue);
    if (args.valid == vectors * n) {
#pragma GCC unroll 16
      for (int i = 0; i < pixels; ++i, y += step)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) hn::StoreU(sum[i][v], d, y + v * n);
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < pixels; ++i, y += step) store_block<D, vectors>(d, sum[i], y, args.valid);
    }
  }
}

template <class D, int vectors>
HWY_INLINE void window_of(const WindowArgs& args, const float* pixel, float* to, Index k) {
  const D d;
  using V = hn::Vec<D>;
  constexpr Index n = static_cast<Index>(hn::MaxLanes(D()));
  const float* const first = pixel + k;
  // The hardware's maximum may drop a NaN. A sum does not: one that is no number tells that the
  // window needs care (infinities of both signs do too, but they are as rare).
  V best[vectors], sum[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) best[v] = sum[v] = hn::LoadU(d, first + v * n);
  for (Index row = 0; row < args.rows; ++row) {
    const float* from = first + row * args.row_pitch;
    for (Index column = 0; column < args.columns; ++column, from += args.column_pitch)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const auto value = hn::LoadU(d, from + v * n);
        best[v] = larger_number(d, best[v], value);
        sum[v] = hn::Add(sum[v], value);
      }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    if (!hn::AllTrue(d, hn::Eq(sum[v], sum[v]))) {
      const float* const from = first + v * n;
      best[v] = hn::LoadU(d, from);
      for (Index row = 0; row < args.rows; ++row)
        for (Index column = 0; column < args.columns; ++column)
          best[v] = larger(d, best[v],
                           hn::LoadU(d, from + row * args.row_pitch + column * args.column_pitch));
    }
    store_results(d, best[v], to + k + v * n, args.valid - k - v * n);
  }
}

template <class D>
void windows_of(const WindowArgs& args) {
  constexpr Index n = static_cast<Index>(hn::MaxLanes(D()));
  const float* from = args.from;
  float* to = args.to;
  for (Index i = 0; i < args.windows; ++i, from += args.from_pitch, to += args.to_pitch) {
    Index k = 0;
    for (; args.valid - k > 3 * n; k += 4 * n) window_of<D, 4>(args, from, to, k);
    for (; k < args.valid; k += n) window_of<D, 1>(args, from, to, k);
  }
}
// Few filters by short vectors: what a long one reads beyond them may lie in stores that have not
// reached the cache yet, for which the load would wait.
void window(const WindowArgs& args) {
  constexpr int some = std::min(lanes, 4);
  if (args.valid <= some) return windows_of<hn::FixedTag<float, some>>(args);
  windows_of<hn::FixedTag<float, lanes>>(args);
}

template <class D, int index, int vectors, bool halves>
void offer(TileLoops& loops) {
  constexpr TileSizes sizes = tile_sizes(lanes, registers, halves);
  constexpr auto max_pixels = static_cast<std::size_t>(sizes.max_pixels[index]);
  constexpr auto max_windows = static_cast<std::size_t>(sizes.max_windows[index]);
  loops.row[index] = &row<D, sizes.row_pixels[index], vectors>;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((loops.plain[index][i + 1] = &tile<D, static_cast<int>(i + 1), vectors, false>), ...);
  }
  (std::make_index_sequence<max_pixels>());
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((loops.pooled[index][i + 1] = &tile<D, static_cast<int>(4 * (i + 1)), vectors, true>), ...);
  }
  (std::make_index_sequence<max_windows>());
}

template <bool halves>
TileLoops make_loops() {
  TileLoops loops{tile_sizes(lanes, registers, halves)};
  loops.window = &window;
  using D = hn::FixedTag<float, lanes>;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  using Half = hn::FixedTag<float, lanes / 2>;
  offer<Half, 0, 1, halves>(loops);
  if constexpr (halves)
    offer<Half, 1, 2, halves>(loops);
  else
    offer<D, 1, 1, halves>(loops);
#else
  offer<D, 1, 1, halves>(loops);
#endif
  offer<D, 2, 2, halves>(loops);
  offer<D, 3, 3, halves>(loops);
  if constexpr (registers >= 32) offer<D, 4, 4, halves>(loops);
  return loops;
}
}  // namespace

const TileLoops* all_loops([[maybe_unused]] bool halves) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if (halves) {
    static const TileLoops loops = make_loops<true>();
    return &loops;
  }
#endif
  static const TileLoops loops = make_loops<false>();
  return &loops;
}
}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu {
HWY_EXPORT(all_loops);
const TileLoops& tile_loops() {
  return *HWY_DYNAMIC_DISPATCH(all_loops)(cpu_facts().halves);
}
}  // namespace convoy::cpu
#endif
