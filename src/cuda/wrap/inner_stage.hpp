// What the kernel inside a wrapper is asked to run, and what the wrapper serves if the kernel
// inside serves `inner`. Host arithmetic, needs no CUDA.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "core/serves.hpp"
#include "core/size.hpp"
#include "cuda/limits.hpp"
#include "math/activation.hpp"
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

/// Pooled adds every pool and every second output.
constexpr Serves served_by_pooled(const Serves& inner) {
  return {
      .types = inner.types,
      .layouts = inner.layouts & Layout::nhwc,
      .strides = inner.strides,
      .dilation = inner.dilation,
      .groups = inner.groups,
      .bias = inner.bias,
      .norm = inner.norm,
      .acts = inner.acts & elementwise,
      .soft = false,
      .hold = false,
      .pools = any_pool,
      .pools_first = false,
      .keep = every_output,
  };
}

inline void refuse_pooled(const Stage& stage, Reasons& why) {
  if (stage.keep.pre && !math::may_round_first(stage.act))
    why.emplace_back(
        "the result of the activation would change, because keep(pre) rounds its input");
}

/// Of Padded: with as many channels and filters more as make multiples.
inline Stage stage_padded(const Stage& stage, Index multiple) {
  Stage inner = stage;
  inner.c = math::ceil_div(stage.c, multiple) * multiple;
  inner.k = math::ceil_div(stage.k, multiple) * multiple;
  return inner;
}

/// Padded adds channels and filters, and copies elements of two bytes.
constexpr Serves served_by_padded(const Serves& inner) {
  return {
      .types = inner.types & Types({DType::f16, DType::bf16}, {DType::f16, DType::bf16}),
      .layouts = inner.layouts & Layout::nhwc,
      .strides = inner.strides,
      .dilation = inner.dilation,
      .groups = false,
      .bias = inner.bias,
      .norm = false,
      .acts = inner.acts & elementwise,
      .soft = false,
      .hold = false,
      .pools = inner.pools,
      .pools_first = inner.pools_first,
      .keep = nothing,
  };
}

/// Fired: the number of inputs in x, one per time step, or one if the stage has `hold`.
inline Index turns_of(const Stage& stage) {
  return stage.hold ? 1 : stage.t;
}
/// Fired: the convolution of all steps' images, with f32 sums as output.
inline Stage stage_of_sums(const Stage& stage) {
  Stage inner = stage;
  inner.n = stage.n * turns_of(stage);
  inner.t = 1;
  inner.act = no_act;
  inner.soft = inner.hold = false;
  inner.pool.reset();
  inner.keep = {};
  inner.out = DType::f32;
  return inner;
}
/// Fired: whether the pool is a separate pass over the spikes.
inline bool pools_apart(const Stage& stage) {
  return stage.pool && (*stage.pool != max_pool(2) || stage.keep.idx);
}
/// The stage of this separate pass: the pool, for all steps' images.
inline Stage stage_of_spikes(const Stage& stage) {
  Stage pool = stage;
  pool.n = stage.n * stage.t;
  pool.t = 1;
  pool.act = no_act;
  pool.soft = pool.hold = false;
  return pool;
}

/// Fired numbers the parts of a thread with 32 bits. There are at most as many parts as membranes.
inline constexpr Limits fire_limits{.membranes = Index{1} << 30};
inline constexpr Index fire_images = Index{1} << 30;  // of all steps: N of the stages around it
/// Fired adds neurons, with all that may follow them, to a kernel that gives f32 sums.
constexpr Serves served_by_fired(const Serves& inner) {
  return {
      .types = {inner.types.x_of(DType::f32), {DType::f32, DType::f16, DType::bf16}},
      .layouts = inner.layouts & Layout::nhwc,
      .strides = inner.strides,
      .dilation = inner.dilation,
      .groups = inner.groups,
      .bias = inner.bias,
      .norm = inner.norm,
      .acts = neurons,
      .soft = true,
      .hold = true,
      .pools = any_pool,
      .pools_first = false,
      .keep = every_output,
  };
}

inline void refuse_fire(const Stage& stage, Reasons& why) {
  for (std::string& reason : beyond(stage, fire_limits)) why.push_back(std::move(reason));
  if (!(Size(stage.n) * stage.t).fits(fire_images))
    why.push_back(fmt::format("N*T = {}, at most 2^30 fit", (Size(stage.n) * stage.t).value()));
  if (why.empty() && !problems(stage_of_sums(stage)).empty())
    why.emplace_back("too large with all steps' images in one stage");
}

/// Of Nchw.
inline Stage stage_nhwc(const Stage& stage) {
  Stage inner = stage;
  inner.layout = Layout::nhwc;
  return inner;
}
/// Nchw turns the layout around. The indices of a pool, which are laid out as y, it leaves alone.
constexpr Serves served_by_nchw(const Serves& inner) {
  return {
      .types = inner.types,
      .layouts = Layout::nchw,
      .strides = inner.strides,
      .dilation = inner.dilation,
      .groups = inner.groups,
      .bias = inner.bias,
      .norm = inner.norm,
      .acts = inner.acts,
      .soft = inner.soft,
      .hold = inner.hold,
      .pools = inner.pools,
      .pools_first = inner.pools_first,
      .keep = inner.keep.without(Kept::idx),
  };
}
/// Whether an image's bytes differ between the layouts.
constexpr bool layouts_differ(Index pixels, Index channels) {
  return pixels > 1 && channels > 1;
}

}  // namespace convoy::cuda
