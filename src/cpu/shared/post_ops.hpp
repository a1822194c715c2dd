// What follows bias and clamp: functions whose constants or operands have no place in registers
// beside a kernel's sums. One function of each instruction set applies them to rows that a kernel
// has just stored, while a cache holds these, so that no family has code for any of them.
#pragma once

#include <limits>

#include "convoy/stage.hpp"
#include "cpu/shared/epilogue.hpp"
#include "math/activation.hpp"

namespace convoy::cpu {

/// Rows of fp32 results, [rows][pixels][k] with pitches in floats.
struct ResultRows {
  float* y = nullptr;
  Index rows = 1, row_pitch = 0;
  Index pixels = 0, pixel_pitch = 0;
  Index k = 0;
};

/// What is left to do to a stage's results once bias and clamp are stored: so far, the activation.
/// Each further operation is a member here and a step in finish_rows; in this order come
/// - an addition: the other tensor and its strides. ResultRows then also says which image, row,
///   pixel and filter `y` points to;
/// - the activation;
/// - a scale for each filter, which needs the first filter too;
/// - a conversion to y's type, for which ResultRows gets another pointer to write to.
struct PostOps {
  Activation act;  // none: the clamp was all of it
  /// The operations follow the stage's pool: its maximum first changes nothing, also in a window
  /// with nothing inside the plane, which is -infinity.
  bool behind_pool = false;

  PostOps() = default;  // none
  explicit PostOps(const Stage& stage) : act(Epilogue(stage.act).whole ? no_act : stage.act) {
    constexpr float least = -std::numeric_limits<float>::infinity();
    behind_pool = stage.pool && math::may_pool_first(act) && math::activate(act, least) == least;
  }
  bool none() const { return act.kind == Activation::Kind::none; }
};

void finish_stored_rows(const PostOps& post, const ResultRows& rows);

/// Applies the operations to rows of results.
inline void finish_rows(const PostOps& post, const ResultRows& rows) {
  if (!post.none()) finish_stored_rows(post, rows);
}
/// The same for rows of the convolution's output, pooled or not: unless the pool comes first.
inline void finish_unpooled_rows(const PostOps& post, const ResultRows& rows) {
  if (!post.behind_pool) finish_rows(post, rows);
}

}  // namespace convoy::cpu
