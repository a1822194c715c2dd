#include "cpu/spike_first.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

// The dot products of AVX-512 VNNI do two thirds of the work in one instruction: ask for them too.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/spike_first.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: this file is compiled once for each instruction set.
#include <hwy/highway.h>

#ifndef CONVOY_CPU_SPIKE_FIRST_ONCE
#define CONVOY_CPU_SPIKE_FIRST_ONCE
namespace convoy::cpu {

struct SpikeFirst::Params {
  const std::uint8_t* images;
  Index n, image, row;  // images, bytes of one, bytes of one row
  const std::int16_t* weights;
  const std::int32_t *sure, *maybe;
  const Index *down, *across;
  Index downs, acrosses;  // tap pairs of two rows; tap pairs in the last row
  Index k, filter_blocks, steps;
  Index out_h, out_w;
  Index block_taps;  // the filter's width if its pixels can share loads, else 0
  bool pool;
  Index window_row, window_column, pixel_row, pixel_column;  // in values of the image
  std::uint8_t* out;
  Index out_step, out_image, out_row, out_column, out_origin;
  std::uint32_t* pairs;   // [image]: a value and the one a row below
  std::uint16_t* values;  // [image]: widened, so that two neighbours are a pair
  const void* self;
  bool (*decide)(const void* self, const std::uint8_t* image, Index k, Index row, Index column,
                 float threshold);
  const float* threshold;
};

}  // namespace convoy::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Params = SpikeFirst::Params;

#if HWY_TARGET == HWY_SCALAR
constexpr int kPixels = 4;
using Pair = std::uint32_t;
HWY_INLINE Pair spread(std::uint32_t pixels) { return pixels; }

/// The weights of a tap pair for eight filters.
struct Weights {
  const std::int16_t* at;
  explicit Weights(const std::int16_t* from) : at(from) {}
};

/// The sums of eight filters for one pixel.
struct Sums {
  std::int32_t lane[8] = {};
  void add_pairs(std::uint32_t pixels, const Weights& w) {
    const auto low = static_cast<std::int32_t>(pixels & 0xffff), high = static_cast<std::int32_t>(pixels >> 16);
    for (int k = 0; k < 8; ++k) lane[k] += low * w.at[2 * k] + high * w.at[2 * k + 1];
  }
  void finish() {}
  void maximum(const Sums& other) {
    for (int k = 0; k < 8; ++k) lane[k] = std::max(lane[k], other.lane[k]);
  }
  unsigned above(const std::int32_t* limit) const {
    unsigned bits = 0;
    for (int k = 0; k < 8; ++k) bits |= (lane[k] > limit[k] ? 1U : 0U) << k;
    return bits;
  }
};
#else
using Int = hn::CappedTag<std::int32_t, 8>;
using Short = hn::Repartition<std::int16_t, Int>;
using Vec = hn::Vec<Int>;
constexpr int kLanes = HWY_LANES(std::int32_t) < 8 ? HWY_LANES(std::int32_t) : 8;
constexpr int kVecs = 8 / kLanes;
// Sums that are under way at once: as many as hide the latency of a multiply-add. Four-lane
// targets keep two vectors and, on some, two halves a sum.
constexpr int kPixels = kVecs == 1 ? 8 : 4;
using Pair = hn::Vec<Short>;
HWY_INLINE Pair spread(std::uint32_t pixels) {
  return hn::BitCast(Short(), hn::Set(Int(), static_cast<std::int32_t>(pixels)));
}

/// The weights of a tap pair for eight filters.
struct Weights {
  Pair w[kVecs];
  explicit HWY_INLINE Weights(const std::int16_t* from) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) w[v] = hn::Load(Short(), from + v * 2 * kLanes);
  }
};

/// The sums of eight filters for one pixel.
struct Sums {
  Vec sum[kVecs], rest[kVecs];
  HWY_INLINE Sums() {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[v] = rest[v] = hn::Zero(Int());
  }
  HWY_INLINE void add_pairs(Pair x, const Weights& w) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
#if HWY_TARGET == HWY_AVX3_DL
      // By hand: the intrinsic may become AVX-VNNI's encoding, which some AVX-512 machines lack.
      asm("%{evex%} vpdpwssd %2, %1, %0" : "+v"(sum[v].raw) : "v"(x.raw), "v"(w.w[v].raw));
#else
      sum[v] = hn::ReorderWidenMulAccumulate(Int(), x, w.w[v], sum[v], rest[v]);
#endif
    }
  }
  HWY_INLINE void finish() {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[v] = hn::RearrangeToOddPlusEven(sum[v], rest[v]);
  }
  HWY_INLINE void maximum(const Sums& other) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[v] = hn::Max(sum[v], other.sum[v]);
  }
  HWY_INLINE unsigned above(const std::int32_t* limit) const {
    const Int d;
    unsigned bits = 0;
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      const auto mask = hn::Gt(sum[v], hn::Load(d, limit + v * kLanes));
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
      bits |= static_cast<unsigned>(mask.raw);
#else
      std::uint8_t part[8] = {};
      hn::StoreMaskBits(d, mask, part);
      bits |= static_cast<unsigned>(part[0]) << (v * kLanes);
#endif
    }
    return bits;
  }
};
#endif

HWY_INLINE std::uint32_t load_pair(const void* at) {
  std::uint32_t pair;
  std::memcpy(&pair, at, sizeof pair);
  return pair;
}

/// Widens an image: pairs of a value and the one below it, and single values.
HWY_INLINE void widen(const Params& p, const std::uint8_t* image) {
  const hn::CappedTag<std::uint32_t, 16> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  const Index lanes = static_cast<Index>(hn::Lanes(d)), count = p.image;
  const Index paired = count - p.row;  // the last row has none below
  for (Index i = 0; i < paired; i += lanes) {
    if (i + lanes > paired && paired >= lanes) i = paired - lanes;
    if (i + lanes <= paired) {
      const auto here = hn::PromoteTo(d, hn::LoadU(d8, image + i));
      const auto below = hn::PromoteTo(d, hn::LoadU(d8, image + i + p.row));
      hn::StoreU(hn::Or(here, hn::ShiftLeft<16>(below)), d, p.pairs + i);
    } else {
      for (; i < paired; ++i) p.pairs[i] = image[i] | static_cast<std::uint32_t>(image[i + p.row]) << 16;
    }
  }
  if (p.acrosses == 0) return;
  Index i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::PromoteTo(d16, hn::LoadU(d8, image + i)), d16, p.values + i);
  for (; i < count; ++i) p.values[i] = image[i];
  p.values[count] = 0;  // the second half of the very last pair, whose weight is 0
}

/// Sums of kPixels pixels and eight filters. `pixel` counts values of the image.
HWY_INLINE void sum_taps(const Params& p, const std::int16_t* weights, const Index (&pixel)[kPixels],
                         Sums (&sum)[kPixels]) {
  for (Index tap = 0; tap < p.downs; ++tap, weights += 16) {
    const std::uint32_t* at = p.pairs + p.down[tap];
    asm("" : "+r"(at));  // one base register, or each load gets an addition of its own
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) sum[i].add_pairs(spread(at[pixel[i]]), Weights(weights));
  }
  for (Index tap = 0; tap < p.acrosses; ++tap, weights += 16) {
    const std::uint16_t* at = p.values + p.across[tap];
    asm("" : "+r"(at));  // one base register, or each load gets an addition of its own
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i)
      sum[i].add_pairs(spread(load_pair(at + pixel[i])), Weights(weights));
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPixels; ++i) sum[i].finish();
}

#if HWY_TARGET != HWY_SCALAR
/// The same for a block of kPixels pixels, two rows by half as many columns, of a one-channel image
/// with stride 1: a pair of pixel values, once spread over a vector, serves every column whose
/// filter reaches it. kTaps is the filter's width.
template <int kTaps>
HWY_INLINE void sum_block(const Params& p, const std::int16_t* weights, Index first,
                          Sums (&sum)[kPixels]) {
  constexpr int columns = kPixels / 2;
  const auto sum_of = [&](int row, int column) HWY_ATTR -> Sums& {
    return sum[column / 2 * 4 + row * 2 + column % 2];  // windows are 2x2
  };
  for (Index r = 0; r < p.downs; r += kTaps) {
    const std::uint32_t* const at = p.pairs + first + p.down[r];
#pragma GCC unroll 16
    for (int column = 0; column < columns + kTaps - 1; ++column)
#pragma GCC unroll 2
      for (int row = 0; row < 2; ++row) {
        const Pair x = spread(at[row * p.row + column]);
#pragma GCC unroll 4
        for (int to = 0; to < columns; ++to)
          if (column - to >= 0 && column - to < kTaps)
            sum_of(row, to).add_pairs(x, Weights(weights + (column - to) * 16));
      }
    weights += kTaps * 16;
  }
  if (p.acrosses) {
    const std::uint16_t* const at = p.values + first + p.across[0];
    constexpr int pairs = (kTaps + 1) / 2;
#pragma GCC unroll 16
    for (int column = 0; column < columns + 2 * pairs - 2; ++column)
#pragma GCC unroll 2
      for (int row = 0; row < 2; ++row) {
        const Pair x = spread(load_pair(at + row * p.row + column));
#pragma GCC unroll 4
        for (int to = 0; to < columns; ++to)
          if (column - to >= 0 && (column - to) % 2 == 0 && (column - to) / 2 < pairs)
            sum_of(row, to).add_pairs(x, Weights(weights + (column - to) / 2 * 16));
      }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPixels; ++i) sum[i].finish();
}
#endif

/// The spikes of one window and eight filters, from the largest sums in it.
HWY_INLINE void emit(const Params& p, const std::uint8_t* image, Index block, Index row,
                     Index column, const Sums& sum, std::uint8_t* to) {
  const Index at = block * p.steps * 8;
  unsigned fired[2] = {sum.above(p.sure + at), 0}, open[2] = {sum.above(p.maybe + at) & ~fired[0], 0};
  if (p.steps == 2) {
    fired[1] = sum.above(p.sure + at + 8);
    open[1] = sum.above(p.maybe + at + 8) & ~fired[1];
  }
  if (HWY_UNLIKELY(open[0] | open[1])) {
    for (Index t = 0; t < p.steps; ++t)
      for (; open[t]; open[t] &= open[t] - 1) {
        const int k = __builtin_ctz(open[t]);
        if (p.decide(p.self, image, block * 8 + k, row, column, p.threshold[t])) fired[t] |= 1U << k;
      }
  }
  to[0] = static_cast<std::uint8_t>(fired[0]);
  if (p.steps == 2) to[p.out_step] = static_cast<std::uint8_t>(fired[1] & ~fired[0]);
}

// kWindow: pixels of a window, 4 or 1. kTaps: the filter's width where sum_block fits, else 0.
template <int kWindow, int kTaps>
void run_windows(const Params& params) {
  const Params p = params;  // a copy, which the bytes written can't alias
  constexpr int together = kPixels / kWindow;
  for (Index i = 0; i < p.n; ++i) {
    const std::uint8_t* const image = p.images + i * p.image;
    widen(p, image);
    for (Index block = 0; block < p.filter_blocks; ++block) {
      const std::int16_t* const weights = p.weights + block * (p.downs + p.acrosses) * 16;
      for (Index row = 0; row < p.out_h; ++row) {
        std::uint8_t* const to = p.out + i * p.out_image + p.out_origin + row * p.out_row + block;
        Index first = row * p.window_row;
        for (Index column = 0; column < p.out_w; column += together) {
          Sums sum[kPixels];
          const Index left = p.out_w - column;
#if HWY_TARGET != HWY_SCALAR
          if (kTaps > 0 && left >= together) {
            sum_block<kTaps == 0 ? 1 : kTaps>(p, weights, first, sum);
          } else
#endif
          {
            // Beyond the last window of a row it is computed once more.
            Index pixel[kPixels];
#pragma GCC unroll 8
            for (int j = 0; j < kPixels; ++j)
              pixel[j] = first + std::min<Index>(j / kWindow, left - 1) * p.window_column +
                         (j % kWindow / 2) * p.pixel_row + (j % kWindow % 2) * p.pixel_column;
            sum_taps(p, weights, pixel, sum);
          }
          first += together * p.window_column;
#pragma GCC unroll 8
          for (int j = 0; j < together; ++j) {
#pragma GCC unroll 4
            for (int other = 1; other < kWindow; ++other)
              sum[j * kWindow].maximum(sum[j * kWindow + other]);
            if (j < left)
              emit(p, image, block, row, column + j, sum[j * kWindow], to + (column + j) * p.out_column);
          }
        }
      }
    }
  }
}

void run_spike_first(const Params& p) {
  if (p.pool && p.block_taps == 3) return run_windows<4, 3>(p);
  if (p.pool && p.block_taps == 5) return run_windows<4, 5>(p);
  if (p.pool) return run_windows<4, 0>(p);
  run_windows<1, 0>(p);
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu {

HWY_EXPORT(run_spike_first);

namespace {

/// 16-bit weights of one filter and what their rounding can do to the sum.
struct Quantised {
  std::vector<std::int16_t> w;     // [R,S,C]
  double scale = 1;                // of the integer sum
  double lowest = 0, highest = 0;  // what to add to scale * sum: bounds of conv + bias
};

/// x'(u) is nearly slope*u + offset: a straight line through its first and last value.
struct Line {
  double slope = 0, offset = 0, error = 0, largest = 0;
};

Line line_of(const float* input) {
  Line line;
  line.offset = input[0];
  line.slope = (static_cast<double>(input[255]) - input[0]) / 255;
  for (int u = 0; u < 256; ++u) {
    line.error = std::max(line.error, std::abs(line.offset + line.slope * u - input[u]));
    line.largest = std::max(line.largest, std::abs(static_cast<double>(input[u])));
  }
  return line;
}

Quantised quantise(const float* w, Index taps, Index channels, const std::vector<Line>& lines,
                   double bias) {
  double largest = 0, total = 0;
  for (Index i = 0; i < taps; ++i) {
    const double scaled = std::abs(w[i] * lines[static_cast<std::size_t>(i % channels)].slope);
    largest = std::max(largest, scaled);
    total += scaled;
  }
  Quantised q;
  q.w.resize(static_cast<std::size_t>(taps));
  // The first bound keeps weights in 16 bits, the second every partial sum in 31.
  q.scale = std::max(largest / 32767, total * 255 / (1 << 30));
  if (q.scale < std::numeric_limits<float>::min()) q.scale = 1;
  double slack = 0;
  q.lowest = q.highest = bias;
  for (Index i = 0; i < taps; ++i) {
    const Line& line = lines[static_cast<std::size_t>(i % channels)];
    const double exact = w[i] * line.slope;
    const double rounded = std::nearbyint(exact / q.scale);
    q.w[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(rounded);
    const double left = (exact - rounded * q.scale) * 255;
    q.lowest += w[i] * line.offset + std::min(left, 0.0);
    q.highest += w[i] * line.offset + std::max(left, 0.0);
    // 2^-21 of the sum's magnitude covers the roundings to fp32 that the exact decision makes.
    slack += std::abs(w[i]) * (line.error + line.largest * 0x1p-21);
  }
  slack += std::abs(bias) * 0x1p-21;
  q.lowest -= slack;
  q.highest += slack;
  return q;
}

/// The largest integer sum s with scale*s + rest < threshold, moved by one for safety.
std::int32_t limit_of(double threshold, double rest, double scale, int safety) {
  const double sum = std::ceil((threshold - rest) / scale) - 1 + safety;
  return static_cast<std::int32_t>(std::clamp(sum, -2147483648.0, 2147483647.0));
}

}  // namespace

std::vector<std::string> SpikeFirst::refusals(const Stage& stage, const float* w, const float* bias,
                                              const float* input) {
  std::vector<std::string> reasons;
  if (stage.dtype != DType::u8) reasons.push_back("the input is not u8");
  if (stage.act.kind != Activation::Kind::if_) reasons.push_back("the neuron is not if");
  if (!stage.hold && stage.t > 1) reasons.push_back("another input in each step");
  if (stage.t > 2) reasons.push_back("more than two steps: a spike is not a threshold on the input");
  if (stage.pad != Padding(0)) reasons.push_back("padding");
  if (stage.groups != 1) reasons.push_back("groups > 1");
  if (stage.keep.any()) reasons.push_back("keeps no second outputs");
  if (stage.layout != Layout::nhwc && stage.c > 1) reasons.push_back("not NHWC");
  if (stage.pool && (*stage.pool != max(2))) reasons.push_back("a pool other than max2");
  if (!reasons.empty() || !w) return reasons;
  // Where sums can overflow, infinities and NaN follow rules that thresholds do not know.
  double largest = 0;
  for (Index c = 0; c < stage.c * 256; ++c)
    largest = std::max(largest, std::abs(static_cast<double>(input[c])));
  const Index taps = stage.r * stage.s * stage.c;
  for (Index k = 0; k < stage.k; ++k) {
    double bound = bias ? std::abs(static_cast<double>(bias[k])) : 0;
    for (Index i = 0; i < taps; ++i) bound += std::abs(w[k * taps + i]) * largest;
    if (!(bound < 1e30)) {
      reasons.push_back("weights so large that sums may overflow");
      break;
    }
  }
  return reasons;
}

SpikeFirst::SpikeFirst(const Stage& stage, const float* w, const float* bias, const float* input,
                       const SpikeLayout& out)
    : stage_(stage), out_(out), input_(input, input + stage.c * 256) {
  const Shapes shapes = shapes_of(stage);
  out_h_ = shapes.out_h;
  out_w_ = shapes.out_w;
  const Index row_taps = stage.s * stage.c, taps = stage.r * row_taps;
  const Index row = stage.w * stage.c;
  w_.assign(w, w + stage.k * taps);
  bias_.assign(static_cast<std::size_t>(stage.k), 0.0F);
  if (bias) bias_.assign(bias, bias + stage.k);
  const float th = stage.act.threshold();
  // After a step without a spike the membrane is x, so step 1 fires where x + x >= th.
  threshold_ = {th, th > 0 ? th / 2 : th};
  threshold_.resize(static_cast<std::size_t>(stage.t));

  const auto offset = [&](Index r, Index s, Index c) {
    return r * stage.dil.h * row + s * stage.dil.w * stage.c + c;
  };
  // Tap pairs: two rows of the filter at a time, then pairs along its last row if R is odd. With
  // dilation, neighbours are not pairs: every row then pairs with nothing.
  struct Pair {
    Index first, second;  // taps; second may be -1
  };
  std::vector<Pair> pairs;
  const bool dense = stage.dil == Extent(1);
  for (Index r = 0; dense && r + 1 < stage.r; r += 2)
    for (Index j = 0; j < row_taps; ++j) {
      pairs.push_back({r * row_taps + j, (r + 1) * row_taps + j});
      down_.push_back(r * row + j);
    }
  for (Index r = dense ? stage.r / 2 * 2 : 0; r < stage.r; ++r)
    for (Index j = 0; j < row_taps; j += dense ? 2 : 1) {
      const Index tap = r * row_taps + j;
      pairs.push_back({tap, dense && j + 1 < row_taps ? tap + 1 : -1});
      across_.push_back(offset(r, j / stage.c, j % stage.c));
    }

  std::vector<Line> lines;
  for (Index c = 0; c < stage.c; ++c) lines.push_back(line_of(input + c * 256));
  const Index blocks = (stage.k + 7) / 8, count = static_cast<Index>(pairs.size());
  packed_ = Buffer<std::int16_t>(static_cast<std::size_t>(blocks * count * 16));
  sure_ = Buffer<std::int32_t>(static_cast<std::size_t>(blocks * stage.t * 8));
  maybe_ = Buffer<std::int32_t>(static_cast<std::size_t>(blocks * stage.t * 8));
  std::fill_n(packed_.data(), packed_.size(), std::int16_t{0});
  // Lanes beyond K sum to 0 and must not fire.
  std::fill_n(sure_.data(), sure_.size(), std::numeric_limits<std::int32_t>::max());
  std::fill_n(maybe_.data(), maybe_.size(), std::numeric_limits<std::int32_t>::max());
  for (Index k = 0; k < stage.k; ++k) {
    const Quantised q = quantise(w + k * taps, taps, stage.c, lines, bias_[static_cast<std::size_t>(k)]);
    const Index block = k / 8, lane = k % 8;
    for (Index i = 0; i < count; ++i) {
      std::int16_t* const to = packed_.data() + ((block * count + i) * 8 + lane) * 2;
      const Pair pair = pairs[static_cast<std::size_t>(i)];
      to[0] = q.w[static_cast<std::size_t>(pair.first)];
      if (pair.second >= 0) to[1] = q.w[static_cast<std::size_t>(pair.second)];
    }
    for (Index t = 0; t < stage.t; ++t) {
      const auto at = static_cast<std::size_t>((block * stage.t + t) * 8 + lane);
      const double threshold = threshold_[static_cast<std::size_t>(t)];
      const double slack = std::abs(threshold) * 0x1p-21;
      sure_[at] = limit_of(threshold + slack, q.lowest, q.scale, 1);
      maybe_[at] = limit_of(threshold - slack, q.highest, q.scale, -1);
    }
  }
}

bool SpikeFirst::fires(const std::uint8_t* image, Index k, Index row, Index column,
                       float threshold) const {
  const Index pool = stage_.pool ? 2 : 1, c = stage_.c;
  const float* const w = w_.data() + k * stage_.r * stage_.s * c;
  for (Index dy = 0; dy < pool; ++dy) {
    for (Index dx = 0; dx < pool; ++dx) {
      const Index y = (row * pool + dy) * stage_.stride.h, x = (column * pool + dx) * stage_.stride.w;
      double sum = 0;
      for (Index r = 0; r < stage_.r; ++r)
        for (Index s = 0; s < stage_.s; ++s)
          for (Index i = 0; i < c; ++i) {
            const std::uint8_t u =
                image[((y + r * stage_.dil.h) * stage_.w + x + s * stage_.dil.w) * c + i];
            sum += static_cast<double>(w[(r * stage_.s + s) * c + i]) *
                   input_[static_cast<std::size_t>(i * 256 + u)];
          }
      if (static_cast<float>(sum) + bias_[static_cast<std::size_t>(k)] >= threshold) return true;
    }
  }
  return false;
}

std::size_t SpikeFirst::scratch_bytes() const {
  const auto values = static_cast<std::size_t>(stage_.h * stage_.w * stage_.c);
  // The last pair of an odd row reads one value beyond the image, by a weight of 0.
  return (values + 64) * (sizeof(std::uint32_t) + sizeof(std::uint16_t)) / 64 * 64 + 64;
}

void SpikeFirst::run(Index n, const std::uint8_t* images, const SpikeBlock& out,
                     std::byte* scratch) const {
  Params p{};
  p.images = images;
  p.n = n;
  p.row = stage_.w * stage_.c;
  p.image = stage_.h * p.row;
  p.weights = packed_.data();
  p.sure = sure_.data();
  p.maybe = maybe_.data();
  p.down = down_.data();
  p.across = across_.data();
  p.downs = static_cast<Index>(down_.size());
  p.acrosses = static_cast<Index>(across_.size());
  p.k = stage_.k;
  p.filter_blocks = (stage_.k + 7) / 8;
  p.steps = stage_.t;
  p.out_h = out_h_;
  p.out_w = out_w_;
  p.pool = stage_.pool.has_value();
  p.block_taps = stage_.c == 1 && stage_.stride == Extent(1) && stage_.dil == Extent(1) ? stage_.s : 0;
  p.pixel_row = stage_.stride.h * p.row;
  p.pixel_column = stage_.stride.w * stage_.c;
  p.window_row = p.pixel_row * (p.pool ? 2 : 1);
  p.window_column = p.pixel_column * (p.pool ? 2 : 1);
  p.out = out.data;
  p.out_step = out.step;
  p.out_image = out_.image_bytes();
  p.out_row = out_.row_bytes();
  p.out_column = out_.bytes();
  p.out_origin = out_.origin();
  p.pairs = reinterpret_cast<std::uint32_t*>(scratch);
  p.values = reinterpret_cast<std::uint16_t*>(scratch + (p.image + 32) * 4);
  p.self = this;
  p.decide = &SpikeFirst::decide;
  p.threshold = threshold_.data();
  HWY_DYNAMIC_DISPATCH(run_spike_first)(p);
}

}  // namespace convoy::cpu
#endif
