#include "cpu/shared/post_ops.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/shared/post_ops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/shared/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
constexpr Index lanes = HWY_LANES(float);
using D = hn::FixedTag<float, lanes>;
using V = hn::Vec<D>;

// Each result v of a row becomes function(v).
template <class Function>
HWY_INLINE void each(const ResultRows& row, const Function& function) {
  const D d;
  const bool dense = row.pixel_pitch == row.k;  // pixels without a gap are one run
  const Index runs = dense ? 1 : row.pixels, count = dense ? row.pixels * row.k : row.k;
  float* y = row.y;
  for (Index run = 0; run < runs; ++run, y += row.pixel_pitch) {
    Index i = 0;
    for (; i + lanes <= count; i += lanes) hn::StoreU(function(hn::LoadU(d, y + i)), d, y + i);
    if (i < count) store_some(d, function(load_some(d, y + i, count - i)), y + i, count - i);
  }
}

// The vectors' form of math::activate: the same operations in the same order. A NaN among results
// is the one that they have already; a function that makes others ends with one_nan.
void activate_row(const Activation& act, const ResultRows& row) {
  const D d;
  const V zero = hn::Zero(d);
  switch (act.kind) {
    case Activation::Kind::leaky: {
      const V slope = hn::Set(d, act.slope());
      const auto below = [&](V v) HWY_ATTR { return hn::Add(hn::Mul(slope, v), zero); };
      if (act.slope() > 0 && act.slope() <= 1)
        each(row, [&](V v) HWY_ATTR { return larger_number(d, v, below(v)); });
      else
        each(row, [&](V v) HWY_ATTR {
          return one_nan(d, hn::IfThenElse(hn::Lt(v, zero), below(v), v));
        });
      break;
    }
    case Activation::Kind::none:
    case Activation::Kind::relu:
    case Activation::Kind::relu6:
    case Activation::Kind::clip:
    case Activation::Kind::if_:
    case Activation::Kind::lif:
      break;  // in registers, or the neuron's
  }
}
}  // namespace

void finish_rows_simd(const PostOps& post, const ResultRows& rows) {
  ResultRows row = rows;
  for (Index i = 0; i < rows.rows; ++i, row.y += rows.row_pitch) activate_row(post.act, row);
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu {
HWY_EXPORT(finish_rows_simd);
void finish_stored_rows(const PostOps& post, const ResultRows& rows) {
  HWY_DYNAMIC_DISPATCH(finish_rows_simd)(post, rows);
}
}  // namespace convoy::cpu
#endif
