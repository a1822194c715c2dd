// What the families' loops do alike to vectors of fp32: broadcasts, the last few lanes, maxima.
// Once for each instruction set, behind <hwy/highway.h>.
#include <cstring>

#include "convoy/stage.hpp"

#if defined(CONVOY_CPU_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOY_CPU_VECTOR_INL
#undef CONVOY_CPU_VECTOR_INL
#else
#define CONVOY_CPU_VECTOR_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A value in every lane. The compiler must not fold the broadcast into each of the multiply-adds
/// that use it, nor keep broadcasts of other taps: it runs out of registers and spills.
template <class D>
HWY_INLINE hn::Vec<D> broadcast(D d, const float* p) {
  auto v = hn::Set(d, *p);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  asm volatile("" : "+v"(v.raw));
#endif
  return v;
}

/// sum += a * b. Left the choice among the instruction's forms, GCC 12 lets long loops end with
/// their sums in other registers than they began, and spills where none is free.
template <class V>
HWY_INLINE void add_product(V a, V b, V& sum) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  auto to = sum.raw;
  asm volatile("vfmadd231ps %2, %1, %0" : "+v"(to) : "v"(a.raw), "v"(b.raw));
  sum.raw = to;
#else
  sum = hn::MulAdd(a, b, sum);
#endif
}

/// a * b + c as a lane of a vector has it: for the few values that no vector takes.
inline float multiply_add_one(float a, float b, float c) {
  const hn::FixedTag<float, 1> one;
  return hn::GetLane(hn::MulAdd(hn::Set(one, a), hn::Set(one, b), hn::Set(one, c)));
}

/// The first `count` lanes, 0 behind them: a full vector could reach past a tensor's end. (Through
/// memory it waits for a store that the load is wider than.)
template <class D>
HWY_INLINE hn::Vec<D> load_some(D d, const float* from, Index count) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
#else
  HWY_ALIGN float lane[hn::MaxLanes(d)] = {};
  std::memcpy(lane, from, static_cast<std::size_t>(count) * sizeof(float));
  return hn::Load(d, lane);
#endif
}
/// Writes the first `count` lanes: what lies behind may be another thread's to write.
template <class D>
HWY_INLINE void store_some(D d, hn::Vec<D> v, float* to, Index count) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(count)), d, to);
#else
  HWY_ALIGN float lane[hn::MaxLanes(d)];
  hn::Store(v, d, lane);
  std::memcpy(to, lane, static_cast<std::size_t>(count) * sizeof(float));
#endif
}

/// Reads and writes of whole vectors, or of the first few lanes only.
template <class D>
struct Whole {
  HWY_INLINE hn::Vec<D> load(const float* p) const { return hn::LoadU(D(), p); }
  HWY_INLINE void store(hn::Vec<D> v, float* p) const { hn::StoreU(v, D(), p); }
};
template <class D>
struct Some {
  Index count;
  HWY_INLINE hn::Vec<D> load(const float* p) const { return load_some(D(), p, count); }
  HWY_INLINE void store(hn::Vec<D> v, float* p) const { store_some(D(), v, p, count); }
};

/// candidate > best ? candidate : best, but NaN wins. The hardware's maximum gives its second
/// operand unless the first is larger, so that only a candidate's NaN is lost, and set again: every
/// bit of it. (Highway's Ne is ordered on x86.)
template <class D>
HWY_INLINE hn::Vec<D> larger([[maybe_unused]] D d, hn::Vec<D> best, hn::Vec<D> candidate) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return hn::IfThenElse(hn::IsNaN(candidate), candidate, hn::Max(candidate, best));
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::Or(hn::Max(candidate, best), hn::VecFromMask(d, hn::IsNaN(candidate)));
#else
  return hn::IfThenElse(hn::Or(hn::Gt(candidate, best), hn::IsNaN(candidate)), candidate, best);
#endif
}

/// The same of numbers: a NaN may get lost. Of a zero of each sign the one that came first stays,
/// as with `larger`.
template <class D>
HWY_INLINE hn::Vec<D> larger_number([[maybe_unused]] D d, hn::Vec<D> best, hn::Vec<D> candidate) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::Max(candidate, best);
#else
  return hn::IfThenElse(hn::Gt(candidate, best), candidate, best);
#endif
}

/// Results that are NaN are the same NaN, all bits set. Which operand's bits a multiply-add hands
/// on is the compiler's choice, loop by loop: without this the bits of an image would depend on
/// which tiles it was cut into, and so on n and threads.
template <class D>
HWY_INLINE hn::Vec<D> one_nan(D d, hn::Vec<D> v) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && HWY_TARGET > HWY_AVX3
  return hn::Or(v, hn::VecFromMask(d, hn::IsNaN(v)));
#else
  const hn::RebindToSigned<D> di;
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(di, -1)), v);
#endif
}
/// The same for a tile of results, at the price of an addition each where all are numbers.
template <class D, int rows, int columns>
HWY_INLINE void one_nan(D d, hn::Vec<D> (&v)[rows][columns]) {
  auto sum = hn::Zero(d);
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j) sum = hn::Add(sum, v[i][j]);
  if (HWY_LIKELY(hn::AllTrue(d, hn::Eq(sum, sum)))) return;
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j) v[i][j] = one_nan(d, v[i][j]);
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
