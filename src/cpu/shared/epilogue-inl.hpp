// The epilogue on vectors of fp32, for all families. An activation is added in epilogue.hpp and, if
// its form is new, in `activate`; its scalar form and whether it decreases in
// src/math/activation.hpp. Once for each instruction set, behind <hwy/highway.h>.
#include "cpu/shared/epilogue.hpp"
#include "cpu/shared/vector-inl.hpp"

#if defined(CONVOY_CPU_EPILOGUE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOY_CPU_EPILOGUE_INL
#undef CONVOY_CPU_EPILOGUE_INL
#else
#define CONVOY_CPU_EPILOGUE_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// lo > v ? lo : v, so that NaN stays: the hardware's maximum gives its second operand then.
template <class D>
HWY_INLINE hn::Vec<D> at_least(D d, hn::Vec<D> v, float low) {
  const auto lo = hn::Set(d, low);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::Max(lo, v);
#else
  return hn::IfThenElse(hn::Lt(v, lo), lo, v);
#endif
}
template <class D>
HWY_INLINE hn::Vec<D> at_most(D d, hn::Vec<D> v, float high) {
  const auto hi = hn::Set(d, high);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::Min(hi, v);
#else
  return hn::IfThenElse(hn::Gt(v, hi), hi, v);
#endif
}
template <class D>
HWY_INLINE hn::Vec<D> leaky(D d, hn::Vec<D> v, float slope) {
  const auto zero = hn::Zero(d);
  return hn::IfThenElse(hn::Lt(v, zero), hn::Add(hn::Mul(hn::Set(d, slope), v), zero), v);
}

template <class D>
HWY_INLINE hn::Vec<D> activate(D d, hn::Vec<D> v, const VectorActivation& act) {
  return act.form == VectorActivation::Form::leaky ? leaky(d, v, act.slope)
                                                   : at_most(d, at_least(d, v, act.lo), act.hi);
}

/// Activates a tile, or of its rows every `step`th. One branch a tile and loops inside it: the
/// tile's sums stay in registers.
template <int step = 1, class D, int rows, int columns>
HWY_INLINE void activate(D d, hn::Vec<D> (&v)[rows][columns], const VectorActivation& act) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (act.form == VectorActivation::Form::leaky) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i += step)
#pragma GCC unroll 12
      for (int j = 0; j < columns; ++j) v[i][j] = leaky(d, v[i][j], act.slope);
  } else if (act.lo > -infinity || act.hi < infinity) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i += step)
#pragma GCC unroll 12
      for (int j = 0; j < columns; ++j) v[i][j] = at_most(d, at_least(d, v[i][j], act.lo), act.hi);
  }
}

/// Bias and activation of a tile's sums; bias: of each column, or of all.
template <int step = 1, class D, int rows, int columns>
HWY_INLINE void add_bias_and_activate(D d, hn::Vec<D> (&v)[rows][columns],
                                      const hn::Vec<D> (&bias)[columns], const Epilogue& epilogue) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; i += step)
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j) v[i][j] = hn::Add(v[i][j], bias[j]);
  activate<step>(d, v, epilogue.on_vectors);
}
template <class D, int rows, int columns>
HWY_INLINE void add_bias_and_activate(D d, hn::Vec<D> (&v)[rows][columns], hn::Vec<D> bias,
                                      const Epilogue& epilogue) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j)
      v[i][j] = activate(d, hn::Add(v[i][j], bias), epilogue.on_vectors);
}

/// Likewise, of any sums: NaN become the one that results have. (Families that make results anew
/// which are not finite need not look for NaN in each.)
template <class D, int rows, int columns, class Bias>
HWY_INLINE void finish(D d, hn::Vec<D> (&v)[rows][columns], const Bias& bias,
                       const Epilogue& epilogue) {
  add_bias_and_activate(d, v, bias, epilogue);
  one_nan(d, v);
}

/// The maximum of a window of four sums, activated. max(a, b): of two sums. (Arrays of windows,
/// below, keep one branch for all; in larger functions g++ 12 fails on them with
/// -fsanitize=thread.)
template <class D, class Max>
HWY_INLINE hn::Vec<D> pool_fours(D d, hn::Vec<D> (&four)[4], hn::Vec<D> bias,
                                 const Epilogue& epilogue, const Max& max) {
  const VectorActivation& act = epilogue.on_vectors;
  const auto most = [&](hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e)
                        HWY_ATTR { return max(max(a, b), max(c, e)); };
  if (epilogue.pool_first)
    return activate(d, hn::Add(most(four[0], four[1], four[2], four[3]), bias), act);
  const auto one = [&](hn::Vec<D> sum) HWY_ATTR { return activate(d, hn::Add(sum, bias), act); };
  return most(one(four[0]), one(four[1]), one(four[2]), one(four[3]));
}

/// The maximum of each window of four sums, activated: first[i][j] of windows i and vectors j of
/// filters. max(a, b): of two sums.
template <class D, int windows, int vectors, class Max, class Bias>
HWY_INLINE void pool_fours(D d, hn::Vec<D> (&four)[4][windows][vectors], const Bias& bias,
                           const Epilogue& epilogue, const Max& max,
                           hn::Vec<D> (&most)[windows][vectors]) {
  if (!epilogue.pool_first) {
#pragma GCC unroll 4
    for (int at = 0; at < 4; ++at) add_bias_and_activate(d, four[at], bias, epilogue);
  }
#pragma GCC unroll 16
  for (int i = 0; i < windows; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < vectors; ++j)
      most[i][j] = max(max(four[0][i][j], four[1][i][j]), max(four[2][i][j], four[3][i][j]));
  if (epilogue.pool_first) add_bias_and_activate(d, most, bias, epilogue);
}

/// The same where the sums of a window are four rows of a tile, whose first then holds the maximum.
/// (Copied into arrays of their own, many sums would be kept on the stack.) bias: of each column.
template <class D, int rows, int columns, class Max>
HWY_INLINE void pool_fours(D d, hn::Vec<D> (&v)[rows][columns], const float* bias,
                           const Epilogue& epilogue, const Max& max) {
  const auto load_bias = [d](const float* from, hn::Vec<D>(&to)[columns]) HWY_ATTR {
    asm("" : "+r"(from));  // not before it is needed: sums fill the registers
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j)
      to[j] = hn::LoadU(d, from + j * static_cast<Index>(hn::MaxLanes(d)));
  };
  if (!epilogue.pool_first) {
    hn::Vec<D> each[columns];
    load_bias(bias, each);
    add_bias_and_activate(d, v, each, epilogue);
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; i += 4)
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j)
      v[i][j] = max(max(v[i][j], v[i + 1][j]), max(v[i + 2][j], v[i + 3][j]));
  if (epilogue.pool_first) {
    hn::Vec<D> each[columns];
    load_bias(bias, each);
    add_bias_and_activate<4>(d, v, each, epilogue);
  }
}

/// Writes the lanes that lie before `left`: all, some or none.
template <class D>
HWY_INLINE void store_results(D d, hn::Vec<D> v, float* to, Index left) {
  if (left >= static_cast<Index>(hn::MaxLanes(d)))
    hn::StoreU(v, d, to);
  else if (left > 0)
    store_some(d, v, to, left);
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
