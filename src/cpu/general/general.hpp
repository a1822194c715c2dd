// What the two halves of the kernel `general` share: general.cpp decides who computes which block,
// general_simd.cpp computes one.
#pragma once

#include "convoy/stage.hpp"
#include "core/buffer.hpp"
#include "core/kernel.hpp"
#include "core/size.hpp"
#include "math/pool.hpp"

namespace convoy::cpu::general_loops {

/// The convolution as the loops see it. A linear layer is turned so that its images lie along w.
struct Geometry {
  Index n = 0, h = 0, w = 0;
  Index p = 0, q = 0, out_h = 0, out_w = 0;
  math::PoolAxis rows, columns;
  Strides x, y;
};

/// Filters that share a register tile: [first, first + count), padded with zeros to the block.
struct PaddedFilters {
  Index first = 0, count = 0;
  Index channel = 0;  // first input channel; with `per_lane`, lane l reads those of its own group
  Index weights = 0;  // where its weights begin, [R,S,C/groups,block]
};

/// Everything about a prepared stage that stays the same from run to run.
struct Layer {
  Stage stage;
  Index c_group = 0, k_group = 0;
  Index block = 0;        // filters of a block: two vectors
  bool per_lane = false;  // small groups: the lanes of a vector belong to different groups
};

struct GeneralWeights final : PackedWeights {
  Buffer<float> packed;
  // A filter with an infinite or NaN weight must not meet the zeros that stand for padding.
  bool finite = true;
};

/// A thread's own memory, in floats. A patch is the padded input of a block as fp32: [h,w,C/groups]
/// or with `per_lane` [h,w,C/groups,block]; h and w are two PatchAxis. The others are [pixels of
/// the block, block of filters].
struct Scratch {
  float* patch = nullptr;
  float* sums = nullptr;
  float* act = nullptr;
  float* membrane = nullptr;
};

/// One axis of a patch: the input of `outputs` neighbouring outputs. All positions from the first
/// tap of the first to the last of the last, or, where strides or dilation leave out more than
/// that is, the taps alone, output by output.
struct PatchAxis {
  Index taps = 1, stride = 1, dil = 1;
  Index size = 1;           // positions in the patch
  Index step = 1, tap = 1;  // in it, from an output to the next and from a tap to the next
  bool apart = false;       // the taps alone

  PatchAxis() = default;
  PatchAxis(Index outputs, Index taps_, Index stride_, Index dil_)
      : taps(taps_), stride(stride_), dil(dil_) {
    const Index all = (outputs - 1) * stride + dil * (taps - 1) + 1;
    apart = Size(outputs) * taps < Size(all);
    size = apart ? outputs * taps : all;
    step = apart ? taps : stride;
    tap = apart ? 1 : dil;
  }
  /// Where the input of place `i` lies, counted from the first tap of the first output.
  Index position(Index i) const { return apart ? i / taps * stride + i % taps * dil : i; }
};

/// One task: windows of one image and filter blocks.
struct Task {
  Index image = 0;
  math::PoolSpan rows, columns;
  const PaddedFilters* blocks = nullptr;
  Index block_count = 0;
  const GeneralWeights* weights = nullptr;
};

/// Filters of a block where a vector has so many lanes: two vectors.
constexpr Index filter_block(int lanes) {
  return 2 * lanes;
}
void run_task(const Layer& layer, const Geometry& geometry, const Task& task,
              const Scratch& scratch, const RunArgs& args);

}  // namespace convoy::cpu::general_loops
