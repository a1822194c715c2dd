// Kernel `spike_resident`: a spiking network from u8 images to labels in one launch. Its parts are
// written for one lane of a warp; `Lane` does what only a warp or a CTA can (LaneOnDevice in
// spike_resident.cu; tests run the same code on lanes of their own making, without a GPU).
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/sm80/spike_resident_sums.cuh"
#include "math/activation.hpp"

namespace convoy::cuda::sm80 {

inline constexpr std::uint32_t half_one = 0x3C00, half_white = 0x5BF8;  // 1, 255

/// Two spikes, bits 0 and 1, as f16 values.
CONVOY_HD std::uint32_t spike_words(std::uint32_t bits) {
  return (bits & 1 ? half_one : 0) | (bits & 2 ? half_one << 16 : 0);
}

/// (x - v)/tau, rounded once: a product with the rounded 1/tau is at most a unit off, and what its
/// remainder says puts it right (Markstein; not for a tau whose mantissa is all ones).
CONVOY_LANE float leak(const ResidentLayer& l, float x) {
  const float near = x * l.rate;
  return fmaf(fmaf(-near, l.tau, x), l.rate, near);
}

/// What a neuron of the layer that reads pixels is given for a sum: the sum times its scale, as
/// both of its parts have it, rounded once, and the bias. Where the product is a number of fp32, as
/// that of 255 and 1/255 is, it is that number. It does not decrease with the sum.
CONVOY_LANE float first_input(const ResidentScale& of, float sum, float bias) {
  return fmaf(sum, of.scale, sum * of.rest) + bias;
}

/// One step of a neuron whose input is x; whether it fires.
template <bool Leaky>
CONVOY_LANE bool step(const ResidentLayer& l, float x, float& v) {
  v = Leaky ? v + leak(l, x - v) : math::charge(Activation::Kind::if_, l.tau, v, x);
  const float spike = math::fire(v, l.threshold);
  v = math::reset(v, l.threshold, spike, l.soft);
  return spike != 0.0F;
}

/// Where a layer's spikes of one image go.
struct Sink {
  int shared = 0;      // of step 0, row 0, column 0
  float* y = nullptr;  // the same of [T,n,P',Q',K]; null: not wanted
  Index y_step = 0;
};

template <class Lane>
CONVOY_LANE void put_word(const Lane& lane, const ResidentLayer& l, const Sink& sink, int t,
                          int row, int column, int k, std::uint32_t word) {
  if (!l.stores) return;
  const int to = sink.shared + t * l.out_step + row * l.out_row + column * l.out_column + k * 2;
  *reinterpret_cast<std::uint32_t*>(lane.shared + to) = word;
}

/// Two spikes of filters k and k + 1 in step t. Of a layer that counts only y gets them.
template <class Lane>
CONVOY_LANE void put_spikes(const Lane& lane, const ResidentLayer& l, const Sink& sink, int t,
                            int row, int column, int k, std::uint32_t bits) {
  if (!l.counts) put_word(lane, l, sink, t, row, column, k, spike_words(bits));
  if (sink.y == nullptr) return;
  float* const y = sink.y + t * sink.y_step + (Index{row} * l.out_w + column) * l.k + k;
  if (k < l.k) y[0] = bits & 1 ? 1.0F : 0.0F;
  if (k + 1 < l.k) y[1] = bits & 2 ? 1.0F : 0.0F;
}
/// Counts of filters k and k + 1: 16 bits each.
template <class Lane>
CONVOY_LANE void put_counts(const Lane& lane, const ResidentLayer& l, const Sink& sink, int row,
                            int column, int k, std::uint32_t counts) {
  const std::uint32_t low = lane.half_of(static_cast<float>(counts & 0xffffU));
  const std::uint32_t high = lane.half_of(static_cast<float>(counts >> 16));
  put_word(lane, l, sink, 0, row, column, k, low | high << 16);
}
CONVOY_HD std::uint32_t add_counts(std::uint32_t counts, std::uint32_t bits) {
  return counts + ((bits & 1) | (bits & 2) << 15);
}

/// The spikes of one window, of filters k and k + 1: inputs of `Count` neurons each, the same in
/// all steps.
template <bool Leaky, int Count, class Lane>
CONVOY_LANE void fire_held(const Lane& lane, const ResidentLayer& l, int steps, const Sink& sink,
                           int row, int column, int k, const float (&x)[2][Count]) {
  float v[2][Count] = {};
  std::uint32_t counts = 0;
  for (int t = 0; t < steps; ++t) {
    std::uint32_t bits = 0;
    CONVOY_UNROLL
    for (int i = 0; i < Count; ++i) {
      bits |= step<Leaky>(l, x[0][i], v[0][i]) ? 1U : 0U;
      bits |= step<Leaky>(l, x[1][i], v[1][i]) ? 2U : 0U;
    }
    put_spikes(lane, l, sink, t, row, column, k, bits);
    counts = add_counts(counts, bits);
  }
  if (l.counts) put_counts(lane, l, sink, row, column, k, counts);
}

/// Whether the window's largest sum may stand for all of it: the neurons' inputs are the same in
/// all of at most two steps, all begin at 0, and what fires in a step fires for any larger input.
CONVOY_HD bool largest_fires_first(const ResidentLayer& l, int steps) {
  return !l.leaky && steps <= 2;
}

/// The spikes of a tile's sums of the first layer, pooled. x(phase, sum): a neuron's input, which
/// does not decrease with its sum.
template <int Phases, class Lane, class Input>
CONVOY_LANE void fire_first_pooled(const Lane& lane, const ResidentLayer& l, int steps,
                                   const Sink& sink, const float (&acc)[Phases][1][4], int item,
                                   int k, Input x) {
  const Place at = first_group(item, 0, l.across, false);
  CONVOY_UNROLL
  for (int phase = 0; phase < Phases; phase += 2) {
    const int column = (at.column * Phases + phase) / 2;
    if (column >= l.out_w) continue;
    const auto &left = acc[phase][0], &right = acc[phase + 1][0];
    if (largest_fires_first(l, steps)) {
      const float most[2] = {fmaxf(fmaxf(left[0], right[0]), fmaxf(left[2], right[2])),
                             fmaxf(fmaxf(left[1], right[1]), fmaxf(left[3], right[3]))};
      const float one[2][1] = {{x(most[0], 0)}, {x(most[1], 1)}};
      fire_held<false>(lane, l, steps, sink, at.row, column, k, one);
      continue;
    }
    const float window[2][4] = {{x(left[0], 0), x(right[0], 0), x(left[2], 0), x(right[2], 0)},
                                {x(left[1], 1), x(right[1], 1), x(left[3], 1), x(right[3], 1)}};
    if (l.leaky)
      fire_held<true>(lane, l, steps, sink, at.row, column, k, window);
    else
      fire_held<false>(lane, l, steps, sink, at.row, column, k, window);
  }
}

/// The same without a pool, of the upper or lower eight rows.
template <int Phases, class Lane, class Input>
CONVOY_LANE void fire_first(const Lane& lane, const ResidentLayer& l, int steps, const Sink& sink,
                            const float (&acc)[Phases][1][4], int half, int item, int k, Input x) {
  if (item >= l.items) return;
  const Place at = first_group(item, 0, l.across, false);
  CONVOY_UNROLL
  for (int phase = 0; phase < Phases; ++phase) {
    const int column = at.column * Phases + phase;
    if (column >= l.out_w) continue;
    const float one[2][1] = {{x(acc[phase][0][2 * half], 0)}, {x(acc[phase][0][2 * half + 1], 1)}};
    if (l.leaky)
      fire_held<true>(lane, l, steps, sink, at.row, column, k, one);
    else
      fire_held<false>(lane, l, steps, sink, at.row, column, k, one);
  }
}

/// The first layer, `Tiles` tiles from `tile` on of eight filters. image: where its units lie.
template <class Net, int Phases, class Lane, class Weights>
CONVOY_LANE void first_task(const Lane& lane, const ResidentParams& p, const ResidentLayer& l,
                            int image, int tile, int filters, Weights weights, const Sink& sink) {
  constexpr int Tiles = Net::tasks.first_tiles;
  int rows[Tiles];
  CONVOY_UNROLL
  for (int i = 0; i < Tiles; ++i) {
    const int row = address_row(lane.lane);
    const int item = first_item(tile + i, row, l.pool);
    const Place at = first_group(item < l.items ? item : l.items - 1, row, l.across, l.pool);
    rows[i] = image + at.row * l.in_row + at.column * l.in_column;
  }
  float acc[Tiles][Phases][1][4];
  const int all = first_tiles(l.items, l.pool);
  sums<Net, Tiles, Phases, 1, 1>(lane, l, rows, there_are<Net, Tiles>(all, tile), 1,
                                 terms<Net>(p.of[0]), weights, acc);
  const int k = filters * tile_columns + sum_column(lane.lane), row = sum_row(lane.lane);
  const auto* const bias = reinterpret_cast<const float*>(lane.shared + l.bias) + k;
  const int steps = Net::steps(p);
  const ResidentScale of = p.of[0];
  const float b[2] = {bias[0], bias[1]};
  const auto x = [&](float sum, int filter) { return first_input(of, sum, b[filter]); };
  CONVOY_UNROLL
  for (int i = 0; i < Tiles; ++i) {
    if (l.pool) {
      const int item = first_item(tile + i, row, true);
      if ((Net::known && l.items % (tile_rows / 2) == 0) || item < l.items)
        fire_first_pooled<Phases>(lane, l, steps, sink, acc[i], item, k, x);
      continue;
    }
    CONVOY_UNROLL
    for (int half = 0; half < 2; ++half)
      fire_first<Phases>(lane, l, steps, sink, acc[i], half,
                         first_item(tile + i, row + 8 * half, false), k, x);
  }
}

/// A step of all neurons of a task: bits 4 * (tile, column) + sum.
template <bool Leaky, int Tiles, int Columns, int Steps>
CONVOY_LANE std::uint32_t fire(const ResidentLayer& l, float scale, const float (&b)[Columns][2],
                               const float (&acc)[Tiles][Columns][Steps][4], int t,
                               float (&v)[Tiles][Columns][4]) {
  std::uint32_t bits = 0;
  CONVOY_UNROLL
  for (int i = 0; i < Tiles; ++i) CONVOY_UNROLL
  for (int j = 0; j < Columns; ++j) CONVOY_UNROLL
  for (int e = 0; e < 4; ++e) {
    const bool fired = step<Leaky>(l, fmaf(acc[i][j][t][e], scale, b[j][e & 1]), v[i][j][e]);
    bits |= fired ? 1U << (4 * (i * Columns + j) + e) : 0U;
  }
  return bits;
}

/// What a task of a later layer works on. Of a convolution one image; of a linear layer rows are
/// the images of a round.
struct Task {
  int in = 0;       // in shared memory
  int items = 0;    // pixels, windows or images
  int tile = 0;     // the first one
  int tiles = 0;    // that there are from there on
  int column = 0;   // of filters, in eights
  int columns = 0;  // that there are from there on
};

template <int Tiles, class Lane>
CONVOY_LANE void task_rows(const Lane& lane, const ResidentLayer& l, const Task& task,
                           int (&rows)[Tiles]) {
  CONVOY_UNROLL
  for (int i = 0; i < Tiles; ++i) {
    const int row = address_row(lane.lane);
    const int item = conv_item(task.tile + i, row, l.pool);
    const Place at = conv_pixel(item < task.items ? item : task.items - 1, row, l.across, l.pool);
    rows[i] = task.in + at.row * l.in_row + at.column * l.in_column;
  }
}

/// Calls body(i, half, item) for each output that this lane writes.
template <int Tiles, class Lane, class Body>
CONVOY_LANE void task_outputs(const Lane& lane, const ResidentLayer& l, const Task& task,
                              Body body) {
  const int row = sum_row(number_of(lane));
  CONVOY_UNROLL
  for (int i = 0; i < Tiles; ++i) CONVOY_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int item = conv_item(task.tile + i, row + 8 * half, l.pool);
    // Of a window's two lanes the one of the even column writes.
    if (item < task.items && (!l.pool || (half == 0 && (row & 1) == 0))) body(i, half, item);
  }
}

/// The sums of the first step, of pixels, are those of all: already scaled.
template <int Tiles, int Columns, int Steps>
CONVOY_LANE void hold(const ResidentScale& of, float (&acc)[Tiles][Columns][Steps][4]) {
  CONVOY_UNROLL
  for (int i = 0; i < Tiles; ++i) CONVOY_UNROLL
  for (int j = 0; j < Columns; ++j) CONVOY_UNROLL
  for (int e = 0; e < 4; ++e) {
    const float scaled = first_input(of, acc[i][j][0][e], 0);
    CONVOY_UNROLL
    for (int t = 0; t < Steps; ++t) acc[i][j][t][e] = scaled;
  }
}

/// A layer on spikes, or the first where it is linear, with a neuron. weights: as sums() takes
/// them; place(item): the item's row and column of y; sink_of(item): where its image goes.
template <class Net, int Tiles, int Ahead, class Lane, class Weights, class SinkOf, class PlaceOf>
CONVOY_LANE void spike_task(const Lane& lane, const ResidentParams& p, const ResidentLayer& l,
                            const ResidentScale& of, const Task& task, Weights weights,
                            SinkOf sink_of, PlaceOf place_of) {
  constexpr int Columns = Net::tasks.columns, Steps = Net::tasks.steps;
  const int steps = Net::steps(p);
  const float scale = l.held ? 1 : of.scale;  // of what hold() leaves
  int rows[Tiles];
  task_rows(lane, l, task, rows);
  float b[Columns][2];
  CONVOY_UNROLL
  for (int j = 0; j < Columns; ++j) {
    const int column = task.column + (j < task.columns ? j : 0);
    const auto* const bias = reinterpret_cast<const float*>(lane.shared + l.bias) +
                             column * tile_columns + sum_column(lane.lane);
    b[j][0] = bias[0], b[j][1] = bias[1];
  }
  float v[Tiles][Columns][4] = {};
  std::uint32_t counts[Tiles][Columns][2] = {};
  const auto bits_at = [&](std::uint32_t bits, int i, int j, int half) {
    return bits >> (4 * (i * Columns + j) + 2 * half) & 3;
  };
  const auto filter = [&](int j) {
    return (task.column + j) * tile_columns + sum_column(lane.lane);
  };
  CONVOY_UNROLL_KNOWN
  for (int from = 0; from < steps; from += Steps) {
    float acc[Tiles][Columns][Steps][4];
    // Of a held input made again every `Steps` steps: kept, they would take the registers.
    sums<Net, Tiles, Columns, Steps, Ahead>(lane, l, rows, task.tiles, l.held ? 1 : steps - from,
                                            terms<Net>(of), weights, acc);
    if (l.held) hold<Tiles, Columns, Steps>(of, acc);
    CONVOY_UNROLL
    for (int i = 0; i < Tiles; ++i) rows[i] += Steps * l.in_step;
    CONVOY_UNROLL
    for (int t = 0; t < Steps; ++t) {
      if (from + t >= steps) continue;
      std::uint32_t bits =
          l.leaky ? fire<true>(l, scale, b, acc, t, v) : fire<false>(l, scale, b, acc, t, v);
      if (l.pool) {
        bits |= bits >> 2;               // upper and lower row
        bits |= lane.exchange(bits, 4);  // with the lane of the next column
      }
      task_outputs<Tiles>(lane, l, task, [&](int i, int half, int item) {
        const Sink sink = sink_of(item);
        const Place at = place_of(item);
        CONVOY_UNROLL
        for (int j = 0; j < Columns; ++j) {
          if (j >= task.columns) continue;
          const std::uint32_t two = bits_at(bits, i, j, half);
          put_spikes(lane, l, sink, from + t, at.row, at.column, filter(j), two);
          counts[i][j][half] = add_counts(counts[i][j][half], two);
        }
      });
    }
  }
  if (!l.counts) return;
  task_outputs<Tiles>(lane, l, task, [&](int i, int half, int item) {
    const Place at = place_of(item);
    CONVOY_UNROLL
    for (int j = 0; j < Columns; ++j)
      if (j < task.columns)
        put_counts(lane, l, sink_of(item), at.row, at.column, filter(j), counts[i][j][half]);
  });
}

/// The mean over the steps of a linear layer, from spike counts: to logits [batch][k].
template <class Net, class Lane, class Weights>
CONVOY_LANE void mean_task(const Lane& lane, const ResidentParams& p, const ResidentLayer& l,
                           const ResidentScale& of, const Task& task, Weights weights,
                           float* logits) {
  int rows[1];
  task_rows(lane, l, task, rows);
  float acc[1][1][1][4];
  sums<Net, 1, 1, 1, Net::tasks.ahead>(lane, l, rows, 1, 1, terms<Net>(of), weights, acc);
  const auto* const bias = reinterpret_cast<const float*>(lane.shared + l.bias);
  task_outputs<1>(lane, l, task, [&](int, int half, int item) {
    CONVOY_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int k = task.column * tile_columns + sum_column(lane.lane) + e;
      if (k >= l.k) continue;
      const float sum = fmaf(acc[0][0][0][2 * half + e], of.scale, bias[k]);
      logits[item * l.k + k] = sum / static_cast<float>(Net::steps(p));
    }
  });
}

}  // namespace convoy::cuda::sm80
