// The transforms of `tap_pairs`, compiled once for each instruction set. Its sums are made by the
// register tiles that `direct` has.
#include "cpu/tap_pairs/tap_pairs.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tap_pairs/tap_pairs_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/shared/epilogue-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::tap_pairs_loops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::add_bias_and_clamp;
using cpu::HWY_NAMESPACE::store_results;
constexpr int lanes = HWY_LANES(float);
using D = hn::FixedTag<float, lanes>;
using V = hn::Vec<D>;

void differences(const DifferenceArgs& args) {
  const D d;
  const Index step = args.row_step * args.pitch;
  for (Index row = 0; row < args.rows; ++row) {
    const float* const x = args.x + row * args.pitch;
    float* const to = args.to + row * args.pitch;
    const bool last = row >= args.rows - args.row_step;
    // Whole vectors: what lies behind the row is scratch as well.
    for (Index i = 0; i < args.floats; i += lanes) {
      const V here = hn::LoadU(d, x + i);
      const V along = hn::Sub(here, hn::LoadU(d, x + i + args.column_step));
      hn::StoreU(along, d, to + i);
      if (last) continue;  // nothing asks for what lies below
      const V below = hn::LoadU(d, x + i + step);
      const V along_below = hn::Sub(below, hn::LoadU(d, x + i + step + args.column_step));
      hn::StoreU(hn::Sub(here, below), d, to + args.plane + i);
      hn::StoreU(hn::Sub(along, along_below), d, to + 2 * args.plane + i);
    }
  }
}

// A result by the definition, in the order r, s, c.
HWY_NOINLINE float by_taps(const OutputArgs& args, Index tile, Index i, Index j, Index filter) {
  const hn::CappedTag<float, 1> one;
  const Stage& stage = *args.stage;
  const Index top = (args.p + i) * stage.stride.h - stage.pad.top;
  const Index left = (2 * tile + j) * stage.stride.w - stage.pad.left;
  const float* const x = args.x + i * stage.stride.h * args.row_pitch +
                         (2 * tile + j) * stage.stride.w * args.pixel_pitch;
  const float* const w = args.w + filter * stage.r * stage.s * stage.c;
  auto sum = hn::Zero(one);
  for (Index r = 0; r < stage.r; ++r)
    for (Index s = 0; s < stage.s; ++s) {
      if (top + r < 0 || top + r >= stage.h || left + s < 0 || left + s >= stage.w) continue;
      for (Index c = 0; c < stage.c; ++c)
        sum = hn::MulAdd(hn::Set(one, x[r * args.row_pitch + s * args.pixel_pitch + c]),
                         hn::Set(one, w[(r * stage.s + s) * stage.c + c]), sum);
    }
  return args.epilogue.finish(hn::GetLane(sum), args.bias[filter]);
}

HWY_NOINLINE void repair(const OutputArgs& args, Index tile, Index columns, Index filter) {
  for (Index i = 0; i < args.rows; ++i)
    for (Index j = 0; j < columns; ++j)
      args.y[i * args.row + (2 * tile + j) * args.column + filter] =
          by_taps(args, tile, i, j, filter);
}

void output(const OutputArgs& args) {
  const D d;
  for (Index tile = 0; tile < args.tiles; ++tile) {
    const Index columns = tile == args.tiles - 1 ? args.last_columns : 2;
    float* const y = args.y + 2 * tile * args.column;
    const float* const m = args.m + tile * args.width;
    for (Index k = 0; k < args.valid; k += lanes) {
      V half[2][3];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        const float* const from = m + j * args.m_pitch + k;
        const V middle = hn::LoadU(d, from + 3 * args.m_pitch);
        half[0][j] = hn::Add(hn::LoadU(d, from), middle);
        half[1][j] = hn::Add(middle, hn::LoadU(d, from + 6 * args.m_pitch));
      }
      const V bias = hn::LoadU(d, args.bias + k);
      V result[2][2];
      V check = hn::Zero(d);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        result[i][0] = hn::Add(half[i][0], half[i][1]);
        result[i][1] = hn::Add(half[i][1], half[i][2]);
      }
      const Index left = args.valid - k;
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j)
          if (i < args.rows && j < columns) check = hn::Add(check, result[i][j]);
      add_bias_and_clamp(d, result, bias, args.epilogue);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j)
          if (i < args.rows && j < columns)
            store_results(d, result[i][j], y + i * args.row + j * args.column + k, left);
      // An infinity or a NaN among them leaves the sum not finite.
      const V distance = hn::Sub(check, check);
      if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Eq(distance, hn::Zero(d))))) {
        HWY_ALIGN float bad[lanes];
        hn::Store(distance, d, bad);
        for (Index lane = 0; lane < lanes && lane < left; ++lane)
          if (!(bad[lane] == 0.0F)) repair(args, tile, columns, k + lane);
      }
    }
  }
}
}  // namespace

const Loops* all_loops() {
  static constexpr Loops loops{&differences, &output};
  return &loops;
}
}  // namespace convoy::cpu::tap_pairs_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::tap_pairs_loops {
HWY_EXPORT(all_loops);
const Loops& loops() {
  return *HWY_DYNAMIC_DISPATCH(all_loops)();
}
}  // namespace convoy::cpu::tap_pairs_loops
#endif
