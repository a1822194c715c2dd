// What the kernel inside a wrapper is asked to run, and what the passes around it do not take.
// Host arithmetic, needs no CUDA.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "convoy/stage.hpp"
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

inline std::vector<std::string> refusals_of_pool(const Stage& stage) {
  std::vector<std::string> why;
  if (stage.keep.pre && !math::may_round_first(stage.act))
    why.emplace_back(
        "the result of the activation would change, because keep(pre) rounds its input");
  if (stage.layout != Layout::nhwc) why.emplace_back("NCHW: expected NHWC");
  return why;
}

/// Of Padded: with as many channels and filters more as make multiples.
inline Stage stage_padded(const Stage& stage, Index multiple) {
  Stage inner = stage;
  inner.c = math::ceil_div(stage.c, multiple) * multiple;
  inner.k = math::ceil_div(stage.k, multiple) * multiple;
  return inner;
}

inline std::vector<std::string> refusals_of_copies(const Stage& stage) {
  std::vector<std::string> why;
  const DType in = stage.dtype, out = stage.output_dtype(true);
  if (size_of(in) != 2 || size_of(out) != 2)
    why.push_back(fmt::format("{} in and {} out: expected f16 or bf16", to_text(in), to_text(out)));
  if (stage.layout != Layout::nhwc) why.emplace_back("NCHW: expected NHWC");
  if (stage.norm) why.emplace_back("norm is not supported");
  if (stage.act.is_neuron()) why.emplace_back("neurons are not supported");
  if (stage.keep.any()) why.emplace_back("second outputs are not supported");
  return why;
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
inline std::vector<std::string> refusals_of_fire(const Stage& stage) {
  std::vector<std::string> why;
  if (!stage.act.is_neuron()) why.emplace_back("the activation is no neuron");
  if (stage.layout != Layout::nhwc) why.emplace_back("NCHW: expected NHWC");
  for (std::string& reason : beyond(stage, fire_limits)) why.push_back(std::move(reason));
  if (!(Size(stage.n) * stage.t).fits(fire_images))
    why.push_back(fmt::format("N*T = {}, at most 2^30 fit", (Size(stage.n) * stage.t).value()));
  if (why.empty() && !problems(stage_of_sums(stage)).empty())
    why.emplace_back("too large with all steps' images in one stage");
  return why;
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
