// Index maps of pooling, one axis at a time: which positions of the unpooled plane a window covers,
// and which part of the plane a block of windows needs. Host and device.
#pragma once

#include "math/activation.hpp"

namespace convoy::math {

/// One axis of a max-pool over `size` positions. A stage without a pool is the default: windows of
/// one position.
struct PoolAxis {
  Index size = 0;
  Index window = 1, stride = 1, pad = 0, dil = 1;

  /// First position inside the plane that window `i` covers; the next ones are `dil` apart. With
  /// padding and dilation it does not rise with `i`: what bounds a block of windows is lowest().
  CONVOY_HD Index begin(Index i) const {
    const Index first = i * stride - pad;
    return first >= 0 ? first : first + (-first + dil - 1) / dil * dil;
  }
  /// No window from `i` on covers a position before this one. Rises with `i`.
  CONVOY_HD Index lowest(Index i) const {
    const Index first = i * stride - pad;
    return first > 0 ? first : 0;
  }
  /// One past the last position inside the plane that window `i` may cover. Rises with `i`.
  CONVOY_HD Index end(Index i) const {
    const Index last = i * stride - pad + dil * (window - 1) + 1;
    return last < size ? last : size;
  }
};

/// A block of windows [out_begin, out_end) on one axis and the positions [begin, end) that it
/// computes. Blocks that tile the windows own [begin, own_end), which tile the plane: what is
/// written for each position (pre, act, membranes) is written by its owner only. Overlapping
/// windows make a block compute positions that the next one owns.
struct PoolSpan {
  Index out_begin = 0, out_end = 0;
  Index begin = 0, end = 0, own_end = 0;
};

CONVOY_HD PoolSpan span_of(const PoolAxis& axis, Index out_size, Index out_begin, Index out_end) {
  const auto inside = [&](Index i) { return i < 0 ? 0 : (i < axis.size ? i : axis.size); };
  PoolSpan span{out_begin, out_end};
  span.begin = out_begin == 0 ? 0 : inside(out_begin * axis.stride - axis.pad);
  span.own_end = out_end == out_size ? axis.size : inside(out_end * axis.stride - axis.pad);
  const Index last = axis.end(out_end - 1);
  span.end = last > span.own_end ? last : span.own_end;
  return span;
}

inline PoolAxis pool_rows(const Stage& stage, Index p) {
  if (!stage.pool) return {p};
  return {p, stage.pool->window.h, stage.pool->stride.h, stage.pool->pad.h, stage.pool->dil.h};
}
/// Rows of the unpooled plane from a window's first to its last; 1 without a pool.
inline Index rows_of_window(const Stage& stage) {
  return stage.pool ? (stage.pool->window.h - 1) * stage.pool->dil.h + 1 : 1;
}
inline PoolAxis pool_columns(const Stage& stage, Index q) {
  if (!stage.pool) return {q};
  return {q, stage.pool->window.w, stage.pool->stride.w, stage.pool->pad.w, stage.pool->dil.w};
}

}  // namespace convoy::math
