// Winograd's 1-D transforms of input and products, by the points that they interpolate at.
//
// In F(4x4, 3x3) a 1-D transform of six values is twelve multiply-adds. F(2x2, 3x3) interpolates at
// 0, 1, -1 and infinity; its filters carry a factor of 4, which makes them whole for whole filters,
// and the output is divided by it. F(2, 2) of the even inputs of a stride of 2, at 0, 1 and
// infinity, needs no factor.
#include "cpu/winograd/winograd.hpp"

#if defined(CONVOY_CPU_WINOGRAD_POINTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOY_CPU_WINOGRAD_POINTS_INL
#undef CONVOY_CPU_WINOGRAD_POINTS_INL
#else
#define CONVOY_CPU_WINOGRAD_POINTS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::winograd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

}  // namespace convoy::cpu::winograd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
