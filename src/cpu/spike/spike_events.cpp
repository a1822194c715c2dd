#include "cpu/spike/spike_events.hpp"

#include <algorithm>

#include "cpu/spike/spike_events_params.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
namespace {

using math::round_up;

// Tables of groups of bits are faster up to here, of eight bits in spike_conv, of four in
// spike_linear (docs/lab/cpu-spiking.md).
constexpr Index most_conv_table_bytes = Index{2} << 20, most_linear_table_bytes = Index{4} << 20;
// With fewer a pixel's sums are loaded and stored for too few additions.
constexpr Index least_channels = 32;
// Sums of a tile: an L2 holds them beside a block's weights.
constexpr Index tile_floats = Index{64} << 10;

/// Sums of an output window and a block of filters.
Size floats_of_window(const Stage& stage, Index steps) {
  return Size(patterns_of(steps)) * (stage.pool ? 4 : 1) *
         std::min(event_block, round_up(stage.k, Index{16}));
}

struct TileShape {
  Index rows, columns;  // output windows
};
TileShape tile_shape(const Stage& stage, Index steps) {
  const Index windows = std::max<Index>(1, tile_floats / floats_of_window(stage, steps).value());
  const Index across = shapes_of(stage).out_w;
  return {std::max<Index>(1, windows / across), std::min(windows, across)};
}

}  // namespace

bool SpikeEvents::pays(const Stage& stage) {
  const Size vectors = Size((stage.k + 15) / 16);
  constexpr Index vector_bytes = 64;
  if (is_linear(stage))
    return !(vectors * ((stage.c + 3) / 4) * 16 * vector_bytes).fits(most_linear_table_bytes);
  const Size groups = Size(stage.r) * stage.s * ((stage.c + 7) / 8);
  return stage.c >= least_channels &&
         !(vectors * groups * 256 * vector_bytes).fits(most_conv_table_bytes);
}

SpikeEvents::SpikeEvents(const Stage& stage, Index steps, const float* w, const float* bias,
                         const SpikeLayout& in, const SpikeLayout& out)
    : in_(in),
      out_(out),
      neuron_(neuron_of(stage)),
      steps_(steps),
      k_(stage.k),
      pool_(stage.pool ? 2 : 1),
      bias_(padded_bias(bias, stage.k)) {
  const Shapes shapes = shapes_of(stage);
  out_h_ = shapes.out_h;
  out_w_ = shapes.out_w;
  const TileShape tile = tile_shape(stage, steps);
  tile_rows_ = tile.rows;
  tile_columns_ = tile.columns;
  in_row_ = stage.stride.h * in.row_bytes();
  in_column_ = stage.stride.w * in.bytes();
  const Index channels = is_linear(stage) ? in.image_bytes() * 8 : stage.c;
  const Index taps = stage.r * stage.s;
  for (Index r = 0; r < stage.r; ++r)
    for (Index s = 0; s < stage.s; ++s)
      for (Index c = 0; c < channels; c += 64) {
        const Index rows = std::min<Index>(64, channels - c);
        const Index tap = r * stage.dil.h * in.row_bytes() + s * stage.dil.w * in.bytes();
        slices_.push_back({tap + c / 8, ~std::uint64_t{0} >> (64 - rows), rows});
      }
  slice_rows_ = taps * channels;
  const Index padded = round_up(k_, Index{16});
  w_ = Buffer<float>(static_cast<std::size_t>(slice_rows_ * padded));
  float* to = w_.data();
  for (Index k = 0; k < padded; k += event_block) {
    const Index width = std::min(event_block, padded - k);
    for (Index tap = 0; tap < taps; ++tap)
      for (Index c = 0; c < channels; ++c, to += width)
        for (Index i = 0; i < width; ++i)
          to[i] = k + i < k_ ? w[((k + i) * taps + tap) * channels + c] : 0.0F;
  }
}

Size SpikeEvents::scratch_floats(const Stage& stage, Index steps) {
  const TileShape tile = tile_shape(stage, steps);
  return floats_of_window(stage, steps) * tile.rows * tile.columns;
}

SpikeEvents::Params SpikeEvents::params(Index n, const SpikeBlock& in, float* scratch) const {
  Params p{};
  p.w = w_.data();
  p.bias = bias_.data();
  p.slices = slices_.data();
  p.slice_count = static_cast<Index>(slices_.size());
  p.slice_rows = slice_rows_;
  p.steps = steps_;
  p.k = k_;
  p.n = n;
  p.out_h = out_h_;
  p.out_w = out_w_;
  p.pool = pool_;
  p.increments = in_.increments;
  p.neuron = neuron_;
  p.in = in.data;
  p.in_step = in.step;
  p.in_image = in_.image_bytes();
  p.in_row = in_row_;
  p.in_column = in_column_;
  p.sums = scratch;
  p.tile_rows = tile_rows_;
  p.tile_columns = tile_columns_;
  return p;
}

void SpikeEvents::run(Index n, const SpikeBlock& in, const SpikeBlock& out, float* scratch) const {
  Params p = params(n, in, scratch);
  p.out = output_in(out_, out);
  run_spike_events(p);
}

void SpikeEvents::run_mean(Index n, const SpikeBlock& in, float* mean, float* scratch) const {
  Params p = params(n, in, scratch);
  p.mean = mean;
  run_spike_events(p);
}

}  // namespace convoy::cpu
