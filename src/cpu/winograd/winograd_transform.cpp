// Winograd's transforms of the input and of the products; the latter finishes the stage.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/winograd/winograd_transform.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <limits>

#include "cpu/shared/epilogue-inl.hpp"
#include "cpu/winograd/winograd.hpp"
#include "cpu/winograd/winograd_points-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::winograd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::clamped;
using cpu::HWY_NAMESPACE::load_some;
using cpu::HWY_NAMESPACE::pool_fours;
using cpu::HWY_NAMESPACE::store_results;

HWY_INLINE void advance(const Geometry& g, Place& at) {
  at.column += g.m;
  if (at.column < g.tiles_w * g.m) return;
  at.column = 0;
  at.row += g.m;
  if (at.row < g.tiles_h * g.m) return;
  at.row = 0;
  ++at.image;
}

// Hides where a pointer comes from: GCC would keep the offsets of all of a tile's vectors, most of
// them on the stack.
HWY_INLINE const float* here(const float* pointer) {
  asm("" : "+r"(pointer));
  return pointer;
}
HWY_INLINE float* here(float* pointer) {
  asm("" : "+r"(pointer));
  return pointer;
}

// One tile and one vector of channels: load(i, j) gives its pixels, column by column.
template <class F, class LoadPixel>
HWY_INLINE void transform_input(D d, LoadPixel load, float* HWY_RESTRICT v, Index step) {
  V half[F::n][F::n];
#pragma GCC unroll 6
  for (int j = 0; j < F::n; ++j) {
    V column[F::n], out[F::n];
#pragma GCC unroll 6
    for (int i = 0; i < F::n; ++i) column[i] = load(i, j);
    F::input(d, column, out);
#pragma GCC unroll 6
    for (int i = 0; i < F::n; ++i) half[i][j] = out[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < F::n; ++i) {
    V out[F::n];
    F::input(d, half[i], out);
#pragma GCC unroll 6
    for (int j = 0; j < F::n; ++j) hn::Store(out[j], d, v + j * step);
    v = here(v + F::n * step);
  }
}

// V of a tile whose pixels all lie inside the image; count: tiles of its group.
template <class F>
HWY_INLINE void input_inside(const Geometry& g, const Strides& s, const float* corner, Index count,
                             float* to) {
  const D d;
  const Index step = v_stride(g, lanes, count), full = g.c / lanes * lanes, rest = g.c - full;
  const float* top = nullptr;  // of the column that is read next
  const auto columns = [&](auto load_one) HWY_ATTR {
    return [&s, &top, load_one](int i, int) HWY_ATTR {
      const V value = load_one(top + i * s.h);
      if (i == F::n - 1) top = here(top + s.w);
      return value;
    };
  };
  Index c = 0;
  for (; c < full; c += lanes, to += count * lanes) {
    // The pixels of a tile are runs too short for the hardware's prefetcher.
    if (c % 16 == 0)
      for (int i = 0; i < F::n; ++i)
        for (int j = 0; j < F::m * F::stride; ++j)
          hwy::Prefetch(corner + i * s.h + (F::n + j) * s.w + c);
    top = corner + c;
    transform_input<F>(d, columns([&](const float* pixel) HWY_ATTR { return hn::LoadU(d, pixel); }),
                       to, step);
  }
  if (rest) {
    top = corner + c;
    transform_input<F>(
        d, columns([&](const float* pixel) HWY_ATTR { return load_some(d, pixel, rest); }), to,
        step);
  }
}

// V of a tile that reaches beyond the image, from input row and column on.
template <class F>
HWY_INLINE void input_at_edge(const Geometry& g, const Tensors& t, const float* image, Index row,
                              Index column, Index count, float* to) {
  const D d;
  const Index step = v_stride(g, lanes, count), full = g.c / lanes * lanes, rest = g.c - full;
  const float* outer[F::n][F::n];
  for (int i = 0; i < F::n; ++i)
    for (int j = 0; j < F::n; ++j) {
      const Index y = row + i, x = column + j;
      const bool inside = y >= 0 && y < g.h && x >= 0 && x < g.w;
      outer[i][j] = inside ? image + y * t.x_stride.h + x * t.x_stride.w : t.zeros;
    }
  Index c = 0;
  for (; c < full; c += lanes, to += count * lanes)
    transform_input<F>(
        d, [&](int i, int j) HWY_ATTR { return hn::LoadU(d, outer[i][j] + c); }, to, step);
  if (rest)
    transform_input<F>(
        d, [&](int i, int j) HWY_ATTR { return load_some(d, outer[i][j] + c, rest); }, to, step);
}

template <class F>
void input(const Geometry& g, const Tensors& t, Index first, Index count, float* v) {
  const Strides s = t.x_stride;
  Place at = place_of(g, first);
  for (Index tile = 0; tile < count; ++tile, advance(g, at)) {
    const Index row = at.row * F::stride - g.pad_top, column = at.column * F::stride - g.pad_left;
    const float* image = t.x + at.image * s.n;
    float* to = v + tile * lanes;
    if (row >= 0 && column >= 0 && row + F::n <= g.h && column + F::n <= g.w)
      input_inside<F>(g, s, image + row * s.h + column * s.w, count, to);
    else
      input_at_edge<F>(g, t, image, row, column, count, to);
  }
}

// The value of one output pixel of a tile by the definition, for a tile that overflowed or met a
// value that is not finite: Winograd's sums would spread it to pixels that do not see it.
HWY_NOINLINE float direct_pixel(const Geometry& g, const Tensors& t, const Place& at, Index i,
                                Index j, Index k) {
  const hn::CappedTag<float, 1> one;
  auto sum = hn::Zero(one);
  for (Index r = 0; r < 3; ++r)
    for (Index s = 0; s < 3; ++s) {
      const Index y = (at.row + i) * g.stride + r - g.pad_top;
      const Index x = (at.column + j) * g.stride + s - g.pad_left;
      if (y < 0 || y >= g.h || x < 0 || x >= g.w) continue;
      const float* pixel = t.x + at.image * t.x_stride.n + y * t.x_stride.h + x * t.x_stride.w;
      const float* filter = t.weights + ((k * 3 + r) * 3 + s) * g.c;
      for (Index c = 0; c < g.c; ++c)
        sum = hn::MulAdd(hn::Set(one, pixel[c]), hn::Set(one, filter[c]), sum);
    }
  return g.epilogue.finish(hn::GetLane(sum), t.bias ? t.bias[k] : 0.0F);
}

HWY_NOINLINE void repair(const Geometry& g, const Tensors& t, const Place& at, Index k) {
  float* image = t.y + at.image * t.y_stride.n + k;
  const Index rows = std::min(g.m, g.p - at.row), columns = std::min(g.m, g.q - at.column);
  if (!g.pool) {
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j)
        image[(at.row + i) * t.y_stride.h + (at.column + j) * t.y_stride.w] =
            direct_pixel(g, t, at, i, j, k);
    return;
  }
  for (Index i = 0; i < rows && (at.row + i) / 2 < g.out_h; i += 2)
    for (Index j = 0; j < columns && (at.column + j) / 2 < g.out_w; j += 2) {
      float best = -std::numeric_limits<float>::infinity();
      for (Index di = i; di < std::min(i + 2, rows); ++di)
        for (Index dj = j; dj < std::min(j + 2, columns); ++dj) {
          const float value = direct_pixel(g, t, at, di, dj, k);
          if (math::beats(value, best)) best = value;
        }
      image[(at.row + i) / 2 * t.y_stride.h + (at.column + j) / 2 * t.y_stride.w] = best;
    }
}

// A tile's results before bias and clamp, from its products `step` floats apart.
template <class F>
HWY_INLINE void transform_output(D d, const float* from, Index step, V (&y)[F::m][F::m]) {
  V half[F::m][F::n];
#pragma GCC unroll 6
  for (int j = 0; j < F::n; ++j) {
    V column[F::n], out[F::m];
#pragma GCC unroll 6
    for (int i = 0; i < F::n; ++i) column[i] = hn::Load(d, from + i * F::n * step);
    from = here(from + step);
    F::output(d, column, out);
#pragma GCC unroll 4
    for (int i = 0; i < F::m; ++i) half[i][j] = out[i];
  }
#pragma GCC unroll 4
  for (int i = 0; i < F::m; ++i) {
    F::output(d, half[i], y[i]);
#pragma GCC unroll 4
    for (int j = 0; j < F::m; ++j) y[i][j] = F::scale(d, y[i][j]);
  }
}

// Not 0 in lanes whose results are not all finite.
template <int m>
HWY_INLINE V not_finite(D d, const V (&y)[m][m]) {
  V sum = hn::Zero(d);
#pragma GCC unroll 4
  for (int i = 0; i < m; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < m; ++j) sum = hn::Add(sum, y[i][j]);
  return hn::Sub(sum, sum);
}

// The tile's results that lie inside the output; to: its first filter in the image's first pixel.
template <int m>
HWY_INLINE void store_tile(D d, const Geometry& g, const Strides& s, const Place& at, V bias,
                           const V (&y)[m][m], float* to, Index count) {
  const Index rows = std::min<Index>(m, g.p - at.row),
              columns = std::min<Index>(m, g.q - at.column);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      store_results(d, clamped(d, hn::Add(y[i][j], bias), g.epilogue),
                    to + (at.row + i) * s.h + (at.column + j) * s.w, count);
}

// Likewise the maxima of its 2x2 windows.
template <int m>
HWY_INLINE void store_windows(D d, const Geometry& g, const Strides& s, const Place& at, V bias,
                              const V (&y)[m][m], float* to, Index count) {
  const Index rows = g.p - at.row, columns = g.q - at.column;
  const auto max = [](V a, V b) HWY_ATTR { return hn::Max(a, b); };
  for (int i = 0; i < m; i += 2)
    for (int j = 0; j < m; j += 2) {
      const Index row = at.row / 2 + i / 2, column = at.column / 2 + j / 2;
      if (row >= g.out_h || column >= g.out_w) continue;
      V window[4] = {y[i][j], y[i][j + 1], y[i + 1][j], y[i + 1][j + 1]};
      // Of a window that ends beyond the output pixels inside stand for those outside.
      if (j + 1 >= columns) window[1] = window[0], window[3] = window[2];
      if (i + 1 >= rows) window[2] = window[0], window[3] = window[1];
      store_results(d, pool_fours(d, window, bias, g.epilogue, max), to + row * s.h + column * s.w,
                    count);
    }
}

// Brings the lines of a tile's results to the caches.
template <int m>
HWY_INLINE void fetch_results(const Geometry& g, const Tensors& t, const Place& at, Index k) {
  const Index size = g.pool ? m / 2 : m, shrink = g.pool ? 2 : 1;
  const Strides s = t.y_stride;
  const Index row = at.row / shrink, column = at.column / shrink;
  const Index rows = std::min(size, g.out_h - row), columns = std::min(size, g.out_w - column);
  const float* to = t.y + at.image * s.n + row * s.h + column * s.w + k;
  for (Index i = 0; i < rows; ++i, to += s.h)
    for (Index j = 0; j < columns; ++j) __builtin_prefetch(to + j * s.w, 1);
}

// A tile and a vector of filters, from filter k on.
template <class F>
HWY_INLINE void output_tile(const Geometry& g, const Tensors& t, const Place& at, const float* from,
                            Index step, Index k) {
  const D d;
  const Index count = std::min(lanes, g.k - k);
  V y[F::m][F::m];
  transform_output<F>(d, from, step, y);
  V bias = hn::Zero(d);
  if (t.bias) bias = count == lanes ? hn::LoadU(d, t.bias + k) : load_some(d, t.bias + k, count);
  const V distance = not_finite(d, y);
  float* const to = t.y + at.image * t.y_stride.n + k;
  if (g.pool)
    store_windows(d, g, t.y_stride, at, bias, y, to, count);
  else
    store_tile(d, g, t.y_stride, at, bias, y, to, count);
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Eq(distance, hn::Zero(d))))) {
    HWY_ALIGN float bad[lanes];
    hn::Store(distance, d, bad);
    for (Index lane = 0; lane < count; ++lane)
      if (!(bad[lane] == 0.0F)) repair(g, t, at, k + lane);
  }
}

template <class F>
void output(const Geometry& g, const Tensors& t, const Block& block, const float* m, Index k) {
  const Index step = m_stride(block.count, panel);
  Place at = place_of(g, block.first), next = at;
  const auto fetch_next = [&]() HWY_ATTR {
    fetch_results<F::m>(g, t, next, k);
    advance(g, next);
  };
  for (Index tile = 0; tile < std::min<Index>(2, block.count); ++tile) fetch_next();
  for (Index tile = 0; tile < block.count; ++tile, advance(g, at)) {
    if (tile + 2 < block.count) fetch_next();
    for (Index part = 0; part < panel && k + part < g.k; part += lanes)
      output_tile<F>(g, t, at, m + tile * panel + part, step, k + part);
  }
}

template <class F>
void fill(Simd& simd) {
  simd.input = &input<F>;
  simd.output = &output<F>;
}
void fill_one(Simd& simd, Index m, Index stride) {
  if (m == 4)
    fill<F4>(simd);
  else if (stride == 2)
    fill<F2Stride2>(simd);
  else
    fill<F2>(simd);
}

}  // namespace convoy::cpu::winograd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::winograd {

HWY_EXPORT(fill_one);
void fill_transforms(Simd& simd, Index m, Index stride) {
  HWY_DYNAMIC_DISPATCH(fill_one)(simd, m, stride);
}

}  // namespace convoy::cpu::winograd
#endif
