#include "cpu/spike/spike_first.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/stage_text.hpp"
#include "cpu/shared/refusals.hpp"
#include "cpu/spike/spike_first_params.hpp"

namespace convoy::cpu {

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

void SpikeFirst::refuse(const Stage& stage, Reasons& why) {
  Refusals(stage, why)
      .expect(stage.act.kind == Activation::Kind::if_, "the activation", name_of(stage.act.kind),
              "if")
      .expect(stage.hold || stage.t == 1, "the input", "another in each step", "held")
      .expect(stage.t <= 2, "T", stage.t,
              "1 or 2: later spikes are not a threshold on the sum of the input")
      .expect(stage.pad == Padding(0), "padding", "asked for", "none")
      .expect(stage.c == 1 || stage.layout == Layout::nhwc, "the layout", "nchw",
              "nhwc for more than one channel");
}

void SpikeFirst::refuse_weights(const Stage& stage, const float* w, const float* bias,
                                const float* input, Reasons& why) {
  // Where sums can overflow, infinities and NaN follow rules that thresholds do not know.
  double largest = 0;
  for (Index c = 0; c < stage.c * 256; ++c)
    largest = std::max(largest, std::abs(static_cast<double>(input[c])));
  const Index taps = stage.r * stage.s * stage.c;
  for (Index k = 0; k < stage.k; ++k) {
    double bound = bias ? std::abs(static_cast<double>(bias[k])) : 0;
    for (Index i = 0; i < taps; ++i) bound += std::abs(w[k * taps + i]) * largest;
    if (!(bound < 1e30)) {
      why.push_back(
          fmt::format("the sum of filter {}'s magnitudes is {:g}, expected less than "
                      "1e30: it may overflow",
                      k, bound));
      break;
    }
  }
}

SpikeFirst::SpikeFirst(const Stage& stage, const float* w, const float* bias, const float* input,
                       const SpikeLayout& out)
    : stage_(stage), out_(out), input_(input, input + stage.c * 256) {
  const Shapes shapes = shapes_of(stage);
  out_h_ = shapes.out_h;
  out_w_ = shapes.out_w;
  w_.assign(w, w + stage.k * stage.r * stage.s * stage.c);
  bias_.assign(static_cast<std::size_t>(stage.k), 0.0F);
  if (bias) bias_.assign(bias, bias + stage.k);
  const float th = stage.act.threshold();
  // After a step without a spike the membrane is x, so step 1 fires where x + x >= th: from th / 2
  // on, or where that is no fp32 number from the next one on.
  const float half = th / 2;
  threshold_ = {th, th <= 0 ? th : half + half < th ? std::nextafter(half, th) : half};
  threshold_.resize(static_cast<std::size_t>(stage.t));

  const std::vector<TapPair> pairs = list_pairs();
  const Index blocks = (stage.k + 7) / 8, count = static_cast<Index>(pairs.size());
  packed_ = Buffer<std::int16_t>(static_cast<std::size_t>(blocks * count * 16));
  sure_ = Buffer<std::int32_t>(static_cast<std::size_t>(blocks * stage.t * 8));
  maybe_ = Buffer<std::int32_t>(static_cast<std::size_t>(blocks * stage.t * 8));
  std::fill_n(packed_.data(), packed_.size(), std::int16_t{0});
  // Lanes beyond K sum to 0 and must not fire.
  std::fill_n(sure_.data(), sure_.size(), std::numeric_limits<std::int32_t>::max());
  std::fill_n(maybe_.data(), maybe_.size(), std::numeric_limits<std::int32_t>::max());
  pack(pairs);
}

/// Lists the pairs, and in down_ and across_ where each begins: two rows of the filter at a time,
/// then pairs along its last row if R is odd. With dilation, neighbours are not pairs: every tap
/// then pairs with nothing.
std::vector<SpikeFirst::TapPair> SpikeFirst::list_pairs() {
  const Index c = stage_.c, row_taps = stage_.s * c, row = stage_.w * c;
  const bool dense = stage_.dil == Extent(1);
  std::vector<TapPair> pairs;
  for (Index r = 0; dense && r + 1 < stage_.r; r += 2)
    for (Index j = 0; j < row_taps; ++j) {
      pairs.push_back({r * row_taps + j, (r + 1) * row_taps + j});
      down_.push_back(r * row + j);
    }
  for (Index r = dense ? stage_.r / 2 * 2 : 0; r < stage_.r; ++r)
    for (Index j = 0; j < row_taps; j += dense ? 2 : 1) {
      const Index tap = r * row_taps + j;
      pairs.push_back({tap, dense && j + 1 < row_taps ? tap + 1 : -1});
      across_.push_back(r * stage_.dil.h * row + j / c * stage_.dil.w * c + j % c);
    }
  return pairs;
}

/// Weights as integers, and the limits of their sums, of every filter.
void SpikeFirst::pack(const std::vector<TapPair>& pairs) {
  const Index taps = stage_.r * stage_.s * stage_.c, count = static_cast<Index>(pairs.size());
  std::vector<Line> lines;
  lines.reserve(static_cast<std::size_t>(stage_.c));
  for (Index c = 0; c < stage_.c; ++c) lines.push_back(line_of(input_.data() + c * 256));
  for (Index k = 0; k < stage_.k; ++k) {
    const Quantised q =
        quantise(w_.data() + k * taps, taps, stage_.c, lines, bias_[static_cast<std::size_t>(k)]);
    const Index block = k / 8, lane = k % 8;
    for (Index i = 0; i < count; ++i) {
      std::int16_t* const to = packed_.data() + ((block * count + i) * 8 + lane) * 2;
      const TapPair pair = pairs[static_cast<std::size_t>(i)];
      to[0] = q.w[static_cast<std::size_t>(pair.first)];
      if (pair.second >= 0) to[1] = q.w[static_cast<std::size_t>(pair.second)];
    }
    for (Index t = 0; t < stage_.t; ++t) {
      const auto at = static_cast<std::size_t>((block * stage_.t + t) * 8 + lane);
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
      const Index y = (row * pool + dy) * stage_.stride.h,
                  x = (column * pool + dx) * stage_.stride.w;
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

Index SpikeFirst::scratch_bytes(const Stage& stage) {
  const Index values = stage.h * stage.w * stage.c;
  // The last pair of an odd row reads one value beyond the image, by a weight of 0.
  return (values + 64) * Index{sizeof(std::uint32_t) + sizeof(std::uint16_t)} / 64 * 64 + 64;
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
  p.block_taps =
      stage_.c == 1 && stage_.stride == Extent(1) && stage_.dil == Extent(1) ? stage_.s : 0;
  p.pixel_row = stage_.stride.h * p.row;
  p.pixel_column = stage_.stride.w * stage_.c;
  p.window_row = p.pixel_row * (p.pool ? 2 : 1);
  p.window_column = p.pixel_column * (p.pool ? 2 : 1);
  p.out = output_in(out_, out);
  p.pairs = reinterpret_cast<std::uint32_t*>(scratch);
  p.values = reinterpret_cast<std::uint16_t*>(scratch + (p.image + 32) * 4);
  p.self = this;
  p.decide = &SpikeFirst::decide;
  p.threshold = threshold_.data();
  run_spike_first(p);
}

}  // namespace convoy::cpu
