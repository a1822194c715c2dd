#include "cuda/sm80/spike_resident_pack.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "convoy/error.hpp"
#include "cuda/sm80/spike_resident_index.hpp"
#include "math/half.hpp"

namespace convoy::cuda::sm80 {
namespace {

// x' of pixel u of a channel: first + range * u / 255. Of black and white pixels that is exact.
struct Line {
  double first = 0, range = 0;
};

// A line through all values of a channel, to within what fp32 rounds; range 0: there is none.
Line line_of(const float* values) {
  const Line line{values[0], static_cast<double>(values[255]) - values[0]};
  const double most = std::max(std::abs(values[0]), std::abs(values[255]));
  for (int u = 0; u < 256; ++u)
    if (!(std::abs(line.first + line.range * u / 255 - values[u]) <= most * 0x1p-22)) return {};
  return line;
}

bool is_half(float value) {
  return math::round_to(DType::f16, value) == value;
}

class Packer {
 public:
  Packer(const Chain& chain, const ResidentLayout& layout, std::span<const Parameters> all)
      : chain_(chain), layout_(layout), all_(all) {
    made_.shared.resize(static_cast<std::size_t>(layout.constants_bytes));
    made_.linear.resize(static_cast<std::size_t>(layout.linear_bytes));
    pixels();
    for (int i = 0; i < layout.size; ++i) {
      tables(i);
      layer(i);
    }
  }
  ResidentConstants take() { return std::move(made_); }

 private:
  const Stage& stage(int i) const { return chain_[static_cast<std::size_t>(i)]; }
  const ResidentLayer& at(int i) const { return layout_.layers[static_cast<std::size_t>(i)]; }

  void pixels() {
    const float* const values = all_.front().values;
    const Index c = chain_.front().c;
    if (values == nullptr) throw Error("spike_resident: no values of the pixels were given");
    bool lines = true;
    for (Index i = 0; i < c && lines; ++i) {
      lines_.push_back(line_of(values + i * 256));
      lines = lines_.back().range != 0;
    }
    if (lines) {
      range_ = common_range();
      return;
    }
    lines_.assign(static_cast<std::size_t>(c), {0, 1});
    for (Index i = 0; i < c * 256; ++i) {
      if (!is_half(values[i]))
        throw Error(fmt::format(
            "spike_resident: x' of pixel {} of channel {} is {}, expected values on a line, or "
            "f16 numbers",
            i % 256, i / 256, values[i]));
      made_.values.push_back(math::float_to_half(values[i]));
    }
  }

  // What the first layer's sums are multiplied by instead of its weights: the range of all
  // channels, where they have one; 1: the weights have it in them. Not below 0: a larger sum is to
  // be a larger input.
  double common_range() const {
    const double range = lines_.front().range;
    const bool all = range > 0 && std::all_of(lines_.begin(), lines_.end(), [&](const Line& line) {
                       return line.range == range;
                     });
    return all ? range : 1;
  }

  // What sums of pixels 0 to 255 are multiplied by.
  double step() const { return made_.values.empty() ? range_ / 255 : 1; }

  // The weight of filter k for value x of a row r of the first layer's units, from column `phase`
  // of the group on.
  double first_weight(Index k, Index r, Index x, Index phase) const {
    const Stage& s = stage(0);
    const Index channels = layout_.image.channels();
    const Index from = x - phase * s.stride.w * channels;
    if (from < 0) return 0;
    const Index column = from / channels, c = from % channels;
    if (column % s.dil.w != 0 || column / s.dil.w >= s.s) return 0;
    const float* const w = all_.front().w + ((k * s.r + r) * s.s + column / s.dil.w) * s.c;
    if (c < s.c) return w[c] * (lines_[static_cast<std::size_t>(c)].range / range_);
    double sum = 0;  // of the channel that is white inside the image
    for (Index i = 0; i < s.c; ++i) sum += w[i] * lines_[static_cast<std::size_t>(i)].first;
    return sum / range_;
  }

  // The weight of filter `column % k` for value e of unit u. Columns of the first layer: eight
  // filters by phases.
  double weight(int i, Index unit, Index e, Index column) const {
    const Stage& s = stage(i);
    const ResidentLayer& l = at(i);
    Index k = column, phase = 0;
    if (i == 0) {
      const Index tile = column / tile_columns;
      phase = tile % l.phases;
      k = tile / l.phases * tile_columns + column % tile_columns;
    }
    if (k >= s.k) return 0;
    const UnitPlace at = unit_place(static_cast<int>(unit), l.taps_h, l.taps_w, l.tap_units);
    if (i == 0) return first_weight(k, at.row, at.unit * unit_values + e, phase);
    // A pixel's channels in eights; of a linear layer its input's pixels.
    const Stage& before = stage(i - 1);
    const Index units = (before.k + unit_values - 1) / unit_values;
    const Index in_pixel = i < layout_.convolutions ? at.unit : unit % units;
    const Index pixel = i < layout_.convolutions ? at.row * s.s + at.column : unit / units;
    const Index c = in_pixel * unit_values + e;
    if (c >= before.k || pixel * before.k + c >= s.r * s.s * s.c) return 0;
    return all_[static_cast<std::size_t>(i)].w[(k * s.r * s.s * s.c) + pixel * before.k + c];
  }

  void tables(int i) {
    const ResidentLayer& l = at(i);
    auto* const offsets = reinterpret_cast<std::int32_t*>(made_.shared.data() + l.offsets);
    for (int u = 0; u < 2 * l.products; ++u) offsets[u] = l.offset(u);
    biases(i);
  }

  void layer(int i) {
    const ResidentLayer& l = at(i);
    const Index units = Index{l.taps_h} * l.taps_w * l.tap_units;
    const Index columns = Index{l.channel_tiles} * l.phases * tile_columns;
    double most = 0;
    for (Index u = 0; u < units; ++u)
      for (Index e = 0; e < unit_values; ++e)
        for (Index column = 0; column < columns; ++column) {
          const double w = std::abs(weight(i, u, e, column));
          most = std::isfinite(w) ? std::max(most, w) : w;
          if (!(w < 1e30)) refuse_weight(i, w);
        }
    // Below 2^14, and so that hi has a lo of full precision down to 2^-26 of the largest.
    int exponent = 0;
    std::frexp(most, &exponent);
    exponent = most == 0 ? 0 : std::clamp(14 - exponent, -100, 100);
    ResidentScale& of = made_.of[static_cast<std::size_t>(i)];
    const double scale = std::ldexp(i == 0 ? step() : 1, -exponent);
    of.scale = static_cast<float>(scale);
    of.rest = static_cast<float>(scale - of.scale);
    of.terms = 1;
    std::byte* const to =
        (i < layout_.convolutions ? made_.shared : made_.linear).data() + l.weights;
    for (Index product = 0; product < l.products; ++product)
      for (Index tile = 0; tile < columns / tile_columns; ++tile)
        for (int lane = 0; lane < 32; ++lane) {
          std::uint16_t terms[2][2][2];
          for (int unit = 0; unit < 2; ++unit)
            for (int e = 0; e < 2; ++e) {
              const Index u = 2 * product + unit;
              const double w = u < units ? weight(i, u, weight_value(lane, e),
                                                  tile * tile_columns + weight_column(lane))
                                         : 0;
              split(std::ldexp(w, exponent), terms[0][unit][e], terms[1][unit][e]);
              if ((terms[1][unit][e] & 0x7fff) != 0) of.terms = 2;
            }
          std::memcpy(to + ((product * (columns / tile_columns) + tile) * 32 + lane) * 16, terms,
                      sizeof terms);
        }
  }

  static void split(double w, std::uint16_t& hi, std::uint16_t& lo) {
    hi = math::float_to_half(static_cast<float>(w));
    lo = math::float_to_half(static_cast<float>(w - math::half_to_float(hi)));
  }

  void biases(int i) {
    const Stage& s = stage(i);
    const ResidentLayer& l = at(i);
    const float* const given = all_[static_cast<std::size_t>(i)].bias;
    auto* const bias = reinterpret_cast<float*>(made_.shared.data() + l.bias);
    for (Index k = 0; k < s.k; ++k) {
      double sum = given ? given[k] : 0;
      if (i == 0 && !layout_.image.ones && made_.values.empty())
        for (Index tap = 0; tap < s.r * s.s; ++tap)
          for (Index c = 0; c < s.c; ++c)
            sum += all_.front().w[(k * s.r * s.s + tap) * s.c + c] *
                   lines_[static_cast<std::size_t>(c)].first;
      if (l.mean) sum *= layout_.steps;
      if (!(std::abs(sum) < 1e30)) refuse_weight(i, sum);
      bias[k] = static_cast<float>(sum);
    }
  }

  void refuse_weight(int i, double found) const {
    throw Error(fmt::format("spike_resident: {}: a weight or bias of {:g}, expected less than 1e30",
                            to_text(stage(i)), found));
  }

  Chain chain_;
  const ResidentLayout& layout_;
  std::span<const Parameters> all_;
  std::vector<Line> lines_;
  double range_ = 1;  // see common_range
  ResidentConstants made_;
};

}  // namespace

ResidentConstants pack_resident(const Chain& chain, const ResidentLayout& layout,
                                std::span<const Parameters> all) {
  return Packer(chain, layout, all).take();
}

}  // namespace convoy::cuda::sm80
