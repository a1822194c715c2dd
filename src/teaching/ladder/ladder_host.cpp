// The ladder's host arithmetic: what fits, which rung and tiles run, how weights are packed.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/refusals.hpp"
#include "teaching/ladder/ladder.hpp"

namespace convoy::cuda::teaching {
namespace {

Index up_to(Index value, Index step) {
  return (value + step - 1) / step * step;
}

bool is_naive(const Stage& stage) {
  return ladder_size(stage.c, stage.k) == LadderSize::naive;
}

/// Whether it is a variant of the last rung: then it runs itself, or not at all.
bool is_variant(LadderRung rung) {
  return rung == LadderRung::half || rung == LadderRung::fma;
}

}  // namespace

LadderRung ladder_rung(LadderRung rung, const Stage& stage) {
  if (is_naive(stage)) return LadderRung::scalar;
  return stage.c % 8 != 0 ? std::min(rung, LadderRung::buffered) : rung;
}

void refuse_ladder(LadderRung rung, const Stage& stage, Reasons& why) {
  constexpr Index most = Index{1} << 30;
  const Shapes shapes = shapes_of(stage);
  Refusals refusals(stage, why);
  refusals
      .no(stage.r > 16 || stage.s > 16,
          fmt::format("a filter of {}x{}, at most 16x16 fit the masks", stage.r, stage.s))
      .within(ladder_limits);
  if (!refusals.none()) return;
  refusals
      .no(shapes.gemm_m > most,
          fmt::format("N*P*Q = {} output pixels, at most 2^30 fit", shapes.gemm_m))
      .no(stage.r * stage.s * up_to(stage.c, ladder_channels) > most,
          "more than 2^30 products of an output")
      .no(shapes.gemm_m <= most && up_to(shapes.gemm_m, 16) / 16 * (up_to(stage.k, 16) / 16) > most,
          "more than 2^30 squares of 16 pixels by 16 filters")
      .no(is_variant(rung) && is_naive(stage),
          fmt::format("C = {}, K = {}: the kernel's tiles need 16 of each", stage.c, stage.k))
      .no(is_variant(rung) && stage.c % 8 != 0,
          fmt::format("C = {} is no multiple of 8 (the kernel loads 16 bytes)", stage.c));
}

std::vector<LadderWithout> ladder_withouts(LadderRung rung, const Stage& stage) {
  using enum LadderWithout;
  if (rung != LadderRung::bounds || ladder_rung(rung, stage) != rung ||
      ladder_size(stage.c, stage.k) != LadderSize::large)
    return {nothing};
  return {nothing, implicit_gemm, shared, buffering, vectors, masks, registers, fusing, bounds};
}

std::string_view to_text(LadderWithout without) {
  switch (without) {
    case LadderWithout::nothing:
      return "whole";
    case LadderWithout::implicit_gemm:
      return "without implicit GEMM";
    case LadderWithout::shared:
      return "without sharing";
    case LadderWithout::buffering:
      return "without double buffering";
    case LadderWithout::vectors:
      return "without 16-byte loads";
    case LadderWithout::masks:
      return "without masks";
    case LadderWithout::registers:
      return "without register tiles";
    case LadderWithout::fusing:
      return "without fusing";
    case LadderWithout::bounds:
      return "without launch bounds";
  }
  return "?";
}

std::vector<float> ladder_weights(const Stage& stage, const float* w) {
  const Index taps = stage.r * stage.s, channels = up_to(stage.c, ladder_channels);
  std::vector<float> packed(
      static_cast<std::size_t>(up_to(stage.k, ladder_filters) * taps * channels));
  for (Index row = 0; row < stage.k * taps; ++row)
    std::copy_n(w + row * stage.c, stage.c, packed.data() + row * channels);
  return packed;
}

}  // namespace convoy::cuda::teaching
