// Winograd's transforms of the input and of the products; the latter finishes the stage.
//
// In F(4x4, 3x3) a 1-D transform of six values is twelve multiply-adds. F(2x2, 3x3) interpolates at
// 0, 1, -1 and infinity; its filters carry a factor of 4, which makes them whole for whole filters,
// and the output is divided by it. F(2, 2) of the even inputs of a stride of 2, at 0, 1 and
// infinity, needs no factor.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/winograd_transform.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <limits>

#include "cpu/vector-inl.hpp"
#include "cpu/winograd.hpp"
#include "math/nan.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::winograd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::activate;
using cpu::HWY_NAMESPACE::load_some;
using cpu::HWY_NAMESPACE::store_some;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr Index lanes = hn::MaxLanes(D());
constexpr Index panel = 2 * lanes;

struct F4 {
  static constexpr int m = 4, n = 6, stride = 1;
  static constexpr double p = point_a, q = point_b;
  // What Lagrange's interpolation divides by, here instead of in U, whose factors are then exact in
  // binary.
  static constexpr double scale_0 = 1 / (p * p * q * q);
  static constexpr double scale_p = 1 / (2 * p * p * (p * p - q * q));
  static constexpr double scale_q = 1 / (2 * q * q * (q * q - p * p));
  static HWY_INLINE V factor(D d, double value) { return hn::Set(d, static_cast<float>(value)); }
  static HWY_INLINE void input(D d, const V (&x)[n], V (&v)[n]) {
    const V a = factor(d, p), b = factor(d, q), aa = factor(d, p * p), bb = factor(d, q * q);
    const V sum = factor(d, p * p + q * q), product = factor(d, p * p * q * q);
    v[0] = hn::MulAdd(product, x[0], hn::NegMulAdd(sum, x[2], x[4]));
    const V even_a = hn::NegMulAdd(bb, x[2], x[4]), odd_a = hn::NegMulAdd(bb, x[1], x[3]);
    const V even_b = hn::NegMulAdd(aa, x[2], x[4]), odd_b = hn::NegMulAdd(aa, x[1], x[3]);
    v[1] = hn::MulAdd(a, odd_a, even_a);
    v[2] = hn::NegMulAdd(a, odd_a, even_a);
    v[3] = hn::MulAdd(b, odd_b, even_b);
    v[4] = hn::NegMulAdd(b, odd_b, even_b);
    v[5] = hn::MulAdd(product, x[1], hn::NegMulAdd(sum, x[3], x[5]));
  }
  static HWY_INLINE void output(D d, const V (&x)[n], V (&y)[m]) {
    const V even_a = hn::Add(x[1], x[2]), odd_a = hn::Sub(x[1], x[2]);
    const V even_b = hn::Add(x[3], x[4]), odd_b = hn::Sub(x[3], x[4]);
    constexpr double a = scale_p, b = scale_q, aa = p * a, bb = q * b, aaa = p * aa, bbb = q * bb;
    constexpr double aaaa = p * aaa, bbbb = q * bbb;
    y[0] = hn::MulAdd(factor(d, scale_0), x[0],
                      hn::MulAdd(factor(d, b), even_b, hn::Mul(factor(d, a), even_a)));
    y[1] = hn::MulAdd(factor(d, bb), odd_b, hn::Mul(factor(d, aa), odd_a));
    y[2] = hn::MulAdd(factor(d, bbb), even_b, hn::Mul(factor(d, aaa), even_a));
    y[3] = hn::MulAdd(factor(d, bbbb), odd_b, hn::MulAdd(factor(d, aaaa), odd_a, x[5]));
  }
  static HWY_INLINE V scale(D, V y) { return y; }
};

struct F2 {
  static constexpr int m = 2, n = 4, stride = 1;
  static HWY_INLINE void input(D, const V (&x)[n], V (&v)[n]) {
    v[0] = hn::Sub(x[0], x[2]);
    v[1] = hn::Add(x[1], x[2]);
    v[2] = hn::Sub(x[2], x[1]);
    v[3] = hn::Sub(x[1], x[3]);
  }
  static HWY_INLINE void output(D, const V (&x)[n], V (&y)[m]) {
    y[0] = hn::Add(x[0], hn::Add(x[1], x[2]));
    y[1] = hn::Sub(hn::Sub(x[1], x[2]), x[3]);
  }
  static HWY_INLINE V scale(D d, V y) { return hn::Mul(y, hn::Set(d, 0.25F)); }
};

struct F2Stride2 {
  static constexpr int m = 2, n = 5, stride = 2;
  static HWY_INLINE void input(D, const V (&x)[n], V (&v)[n]) {
    v[0] = hn::Sub(x[0], x[2]);
    v[1] = x[2];
    v[2] = hn::Sub(x[4], x[2]);
    v[3] = x[1];
    v[4] = x[3];
  }
  static HWY_INLINE void output(D, const V (&x)[n], V (&y)[m]) {
    y[0] = hn::Add(x[0], hn::Add(x[1], x[3]));
    y[1] = hn::Add(x[2], hn::Add(x[1], x[4]));
  }
  static HWY_INLINE V scale(D, V y) { return y; }
};

// Where a tile lies.
struct Place {
  Index image, row, column;  // row and column of its first output pixel
};
HWY_INLINE Place place_of(const Geometry& g, Index tile) {
  const Index image = tile / g.tiles_an_image(), rest = tile % g.tiles_an_image();
  return {image, rest / g.tiles_w * g.m, rest % g.tiles_w * g.m};
}
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

template <class F>
void input(const Geometry& g, const Tensors& t, Index first, Index count, float* v) {
  const D d;
  const Index step = v_stride(g, lanes, count), full = g.c / lanes * lanes, rest = g.c - full;
  const Strides s = t.x_stride;
  Place at = place_of(g, first);
  for (Index tile = 0; tile < count; ++tile, advance(g, at)) {
    const Index row = at.row * F::stride - g.pad_top, column = at.column * F::stride - g.pad_left;
    const float* image = t.x + at.image * s.n;
    float* to = v + tile * lanes;
    if (row >= 0 && column >= 0 && row + F::n <= g.h && column + F::n <= g.w) {
      const float* corner = image + row * s.h + column * s.w;
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
        // The pixels of a tile are short runs, which the hardware does not foresee.
        if (c % 16 == 0)
          for (int i = 0; i < F::n; ++i)
            for (int j = 0; j < F::m * F::stride; ++j)
              hwy::Prefetch(corner + i * s.h + (F::n + j) * s.w + c);
        top = corner + c;
        transform_input<F>(
            d, columns([&](const float* pixel) HWY_ATTR { return hn::LoadU(d, pixel); }), to, step);
      }
      if (rest) {
        top = corner + c;
        transform_input<F>(
            d, columns([&](const float* pixel) HWY_ATTR { return load_some(d, pixel, rest); }), to,
            step);
      }
      continue;
    }
    const float* outer[F::n][F::n];
    for (int i = 0; i < F::n; ++i)
      for (int j = 0; j < F::n; ++j) {
        const Index y = row + i, x = column + j;
        const bool inside = y >= 0 && y < g.h && x >= 0 && x < g.w;
        outer[i][j] = inside ? image + y * s.h + x * s.w : t.zeros;
      }
    Index c = 0;
    for (; c < full; c += lanes, to += count * lanes)
      transform_input<F>(
          d, [&](int i, int j) HWY_ATTR { return hn::LoadU(d, outer[i][j] + c); }, to, step);
    if (rest)
      transform_input<F>(
          d, [&](int i, int j) HWY_ATTR { return load_some(d, outer[i][j] + c, rest); }, to, step);
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
  const float value = hn::GetLane(sum) + (t.bias ? t.bias[k] : 0.0F);
  return math::one_nan(math::activate(g.act.kind, g.act.a, g.act.b, value));
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

template <class F>
void output(const Geometry& g, const Tensors& t, const Block& block, const float* m, Index k) {
  const D d;
  const Index step = m_stride(block.count, panel);
  const Strides s = t.y_stride;
  const bool late = math::may_pool_first(g.act);
  const V outside = hn::Set(d, -std::numeric_limits<float>::infinity());
  Place at = place_of(g, block.first), next = at;
  const Index size = g.pool ? F::m / 2 : F::m, shrink = g.pool ? 2 : 1;
  const auto ask = [&]() HWY_ATTR {
    const Index row = next.row / shrink, column = next.column / shrink;
    const Index rows = std::min(size, g.out_h - row), columns = std::min(size, g.out_w - column);
    const float* to = t.y + next.image * s.n + row * s.h + column * s.w + k;
    for (Index i = 0; i < rows; ++i, to += s.h)
      for (Index j = 0; j < columns; ++j) __builtin_prefetch(to + j * s.w, 1);
    advance(g, next);
  };
  for (Index tile = 0; tile < std::min<Index>(2, block.count); ++tile) ask();
  for (Index tile = 0; tile < block.count; ++tile, advance(g, at)) {
    if (tile + 2 < block.count) ask();
    float* image = t.y + at.image * s.n;
    const Index rows = std::min<Index>(F::m, g.p - at.row);
    const Index columns = std::min<Index>(F::m, g.q - at.column);
    for (Index part = 0; part < 2; ++part) {
      const Index channel = k + part * lanes, count = std::min(lanes, g.k - channel);
      if (count <= 0) break;
      const float* from = m + tile * panel + part * lanes;
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
      V bias = hn::Zero(d);
      if (t.bias)
        bias =
            count == lanes ? hn::LoadU(d, t.bias + channel) : load_some(d, t.bias + channel, count);
      V y[F::m][F::m];
      V check = hn::Zero(d);
#pragma GCC unroll 4
      for (int i = 0; i < F::m; ++i) {
        F::output(d, half[i], y[i]);
#pragma GCC unroll 4
        for (int j = 0; j < F::m; ++j) {
          y[i][j] = F::scale(d, y[i][j]);
          check = hn::Add(check, y[i][j]);
        }
      }
      const auto store = [&](V value, Index row, Index column) HWY_ATTR {
        float* to = image + row * s.h + column * s.w + channel;
        if (count == lanes)
          hn::StoreU(value, d, to);
        else
          store_some(d, value, to, count);
      };
      if (!g.pool) {
        for (int i = 0; i < rows; ++i)
          for (int j = 0; j < columns; ++j)
            store(activate(d, hn::Add(y[i][j], bias), g.act), at.row + i, at.column + j);
      } else {
        for (int i = 0; i < F::m; i += 2)
          for (int j = 0; j < F::m; j += 2) {
            const Index row = at.row / 2 + i / 2, column = at.column / 2 + j / 2;
            if (row >= g.out_h || column >= g.out_w) continue;
            V window[4] = {y[i][j], y[i][j + 1], y[i + 1][j], y[i + 1][j + 1]};
            if (!late)
              for (V& v : window) v = activate(d, hn::Add(v, bias), g.act);
            if (j + 1 >= columns) window[1] = window[3] = outside;
            if (i + 1 >= rows) window[2] = window[3] = outside;
            V best = hn::Max(hn::Max(window[0], window[1]), hn::Max(window[2], window[3]));
            if (late) best = activate(d, hn::Add(best, bias), g.act);
            store(best, row, column);
          }
      }
      // An infinity or a NaN anywhere in the tile leaves the sum not finite.
      const V distance = hn::Sub(check, check);
      if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Eq(distance, hn::Zero(d))))) {
        HWY_ALIGN float bad[lanes];
        hn::Store(distance, d, bad);
        for (Index lane = 0; lane < count; ++lane)
          if (!(bad[lane] == 0.0F)) repair(g, t, at, channel + lane);
      }
    }
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
