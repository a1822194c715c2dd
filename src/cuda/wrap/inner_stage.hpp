// What the kernel inside a wrapper is asked to run. Host arithmetic, needs no CUDA.
#pragma once

#include "convoy/stage.hpp"
#include "math/divide.hpp"

namespace convoy::cuda {

/// Of Pooled: without a pool, and without the activation where conv + bias is kept. The pass may
/// activate what is rounded already where that changes no bit.
inline Stage stage_without_pool(const Stage& stage) {
  Stage inner = stage;
  inner.pool.reset();
  inner.keep = {};
  if (stage.keep.pre) inner.act = no_act;
  return inner;
}

/// Of Padded: with as many channels and filters more as make multiples.
inline Stage stage_padded(const Stage& stage, Index multiple) {
  Stage inner = stage;
  inner.c = math::ceil_div(stage.c, multiple) * multiple;
  inner.k = math::ceil_div(stage.k, multiple) * multiple;
  return inner;
}

/// Of Nchw.
inline Stage stage_nhwc(const Stage& stage) {
  Stage inner = stage;
  inner.layout = Layout::nhwc;
  return inner;
}
/// Whether an image's bytes differ between the layouts.
constexpr bool layouts_differ(Index pixels, Index channels) {
  return pixels > 1 && channels > 1;
}

}  // namespace convoy::cuda
