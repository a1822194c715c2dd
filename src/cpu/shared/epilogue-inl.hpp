// The epilogue on vectors of fp32, for all families: bias, clamp and 2x2 pool in registers. Once
// for each instruction set, behind <hwy/highway.h>.
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
HWY_INLINE hn::Vec<D> clamped(D d, hn::Vec<D> v, const Epilogue& epilogue) {
  return at_most(d, at_least(d, v, epilogue.lo), epilogue.hi);
}

/// Clamps a tile, or of its rows every `step`th. One branch a tile and loops inside it: the tile's
/// sums stay in registers.
template <int step = 1, class D, int rows, int columns>
HWY_INLINE void clamp_tile(D d, hn::Vec<D> (&v)[rows][columns], const Epilogue& epilogue) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (!(epilogue.lo > -infinity || epilogue.hi < infinity)) return;
#pragma GCC unroll 16
  for (int i = 0; i < rows; i += step)
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j) v[i][j] = clamped(d, v[i][j], epilogue);
}

/// Bias and clamp of a tile's sums; bias: of each column, or of all.
template <int step = 1, class D, int rows, int columns>
HWY_INLINE void add_bias_and_clamp(D d, hn::Vec<D> (&v)[rows][columns],
                                   const hn::Vec<D> (&bias)[columns], const Epilogue& epilogue) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; i += step)
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j) v[i][j] = hn::Add(v[i][j], bias[j]);
  clamp_tile<step>(d, v, epilogue);
}
template <class D, int rows, int columns>
HWY_INLINE void add_bias_and_clamp(D d, hn::Vec<D> (&v)[rows][columns], hn::Vec<D> bias,
                                   const Epilogue& epilogue) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j) v[i][j] = clamped(d, hn::Add(v[i][j], bias), epilogue);
}

/// Likewise, of any sums: NaN become the one that results have. (Families that make results anew
/// which are not finite need not look for NaN in each.)
template <class D, int rows, int columns, class Bias>
HWY_INLINE void finish(D d, hn::Vec<D> (&v)[rows][columns], const Bias& bias,
                       const Epilogue& epilogue) {
  add_bias_and_clamp(d, v, bias, epilogue);
  one_nan(d, v);
}

/// The maximum of a window of four sums, with bias and clamp. max(a, b): of two sums. (Arrays of
/// windows, below, keep one branch for all; in larger functions g++ 12 fails on them with
/// -fsanitize=thread.)
template <class D, class Max>
HWY_INLINE hn::Vec<D> pool_fours(D d, const hn::Vec<D> (&four)[4], hn::Vec<D> bias,
                                 const Epilogue& epilogue, const Max& max) {
  const auto most = max(max(four[0], four[1]), max(four[2], four[3]));
  return clamped(d, hn::Add(most, bias), epilogue);
}

/// The same of each window: four[at][i][j] of windows i and vectors j of filters.
template <class D, int windows, int vectors, class Max, class Bias>
HWY_INLINE void pool_fours(D d, const hn::Vec<D> (&four)[4][windows][vectors], const Bias& bias,
                           const Epilogue& epilogue, const Max& max,
                           hn::Vec<D> (&most)[windows][vectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < windows; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < vectors; ++j)
      most[i][j] = max(max(four[0][i][j], four[1][i][j]), max(four[2][i][j], four[3][i][j]));
  add_bias_and_clamp(d, most, bias, epilogue);
}

/// The same where the sums of a window are four rows of a tile, whose first then holds the maximum.
/// (Copied into arrays of their own, many sums would be kept on the stack.) bias: of each column.
template <class D, int rows, int columns, class Max>
HWY_INLINE void pool_fours(D d, hn::Vec<D> (&v)[rows][columns], const float* bias,
                           const Epilogue& epilogue, const Max& max) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; i += 4)
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j)
      v[i][j] = max(max(v[i][j], v[i + 1][j]), max(v[i + 2][j], v[i + 3][j]));
  asm("" : "+r"(bias));  // not loaded before it is needed: sums fill the registers
  hn::Vec<D> each[columns];
#pragma GCC unroll 12
  for (int j = 0; j < columns; ++j)
    each[j] = hn::LoadU(d, bias + j * static_cast<Index>(hn::MaxLanes(d)));
  add_bias_and_clamp<4>(d, v, each, epilogue);
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
