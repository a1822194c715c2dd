// Kernel `spike_resident`: how a CTA takes its images through all layers (spike_resident.cuh has
// the products and neurons).
#pragma once

#include "cuda/sm80/spike_resident.cuh"

namespace convoy::cuda::sm80 {

struct alignas(16) Words4 {
  std::uint32_t word[4];
};

/// The team that a lane works in: `size` lanes, of which it is number `index`.
struct Team {
  int number = 0, index = 0, size = 0;
  int warp = 0, warps = 0;
  int memory = 0;  // where in shared memory
};

/// The f16 value at place `value` of the unit's run: of pixel column + value / channels.
template <class Lane>
CONVOY_LANE std::uint32_t pixel_value(const Lane& lane, const ResidentParams& p,
                                      const ResidentImage& at, const std::uint8_t* image, int row,
                                      int column, int value) {
  const int channels = at.channels();
  const int w = column + value / channels, c = value % channels;
  if (row < 0 || row >= at.h || w < 0 || w >= at.w) return 0;
  if (c == at.c) return half_white;
  const std::uint8_t u = image[(Index{row} * at.w + w) * at.c + c];
  if (p.values != nullptr) return lane.from_global(p.values + c * 256 + u);
  return lane.half_of(static_cast<float>(u));
}

/// Where unit `i` of an image lies: its run of values in the image, itself in shared memory.
struct UnitAt {
  int y = 0, column = 0, value = 0;
  int from = 0, to = 0;
};
CONVOY_LANE UnitAt unit_at(const ResidentImage& at, int i) {
  const int per_row = at.groups * at.units, row = i / per_row, in_row = i % per_row;
  UnitAt unit;
  unit.y = row - at.top;
  unit.column = in_row / at.units * at.step - at.left;
  unit.value = in_row % at.units * unit_values;
  unit.from = (unit.y * at.w + unit.column) * at.c + unit.value;
  unit.to = row * at.pitch + in_row;
  return unit;
}

/// Eight pixels as they lie in memory.
struct PixelWords {
  std::uint32_t word[2];
};
template <class Net, class Lane>
CONVOY_LANE PixelWords pixels_at(const Lane& lane, const std::uint8_t* from) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(from);
  if constexpr (Net::tasks == few_tasks)  // maybe the launch's own
    return {{words[0], words[1]}};
  else
    return {{lane.from_global(words), lane.from_global(words + 1)}};
}
template <class Lane>
CONVOY_LANE Words4 unit_of(const Lane& lane, const PixelWords& pixels) {
  Words4 unit;
  CONVOY_UNROLL
  for (int j = 0; j < 2; ++j) {
    unit.word[2 * j] = lane.template two_pixels<0>(pixels.word[j]);
    unit.word[2 * j + 1] = lane.template two_pixels<1>(pixels.word[j]);
  }
  return unit;
}

/// Units of an image, as ResidentImage says, from `to` in shared memory on.
template <class Net, class Lane>
CONVOY_LANE void put_image(const Lane& lane, const ResidentParams& p, const ResidentImage& at,
                           const Team& team, const std::uint8_t* image, int to) {
  const int all = at.rows * at.groups * at.units, bytes = at.h * at.w * at.c;
  auto* const to_units = reinterpret_cast<Words4*>(lane.shared + to);
  const bool plain = !at.ones && p.values == nullptr;
  const auto in_words = [&](int from) {
    return plain && from + unit_values <= bytes &&
           reinterpret_cast<std::uintptr_t>(image + from) % 4 == 0;
  };
  if (at.w * at.c % 4 == 0 && at.step * at.c % 4 == 0 && in_words(0) &&
      in_words(unit_at(at, all - 1).from)) {
    // So many on their way at once.
    constexpr int batch = 6;
    for (int begin = team.index; begin < all; begin += batch * team.size) {
      PixelWords pixels[batch];
      CONVOY_UNROLL
      for (int b = 0; b < batch; ++b)
        if (const int i = begin + b * team.size; i < all)
          pixels[b] = pixels_at<Net>(lane, image + unit_at(at, i).from);
      CONVOY_UNROLL
      for (int b = 0; b < batch; ++b)
        if (const int i = begin + b * team.size; i < all)
          to_units[unit_at(at, i).to] = unit_of(lane, pixels[b]);
    }
    return;
  }
  for (int i = team.index; i < all; i += team.size) {
    const UnitAt unit = unit_at(at, i);
    Words4 words;
    // What lies beyond a row's end has weights of 0 or makes columns that nobody keeps.
    if (in_words(unit.from)) {
      words = unit_of(lane, pixels_at<Net>(lane, image + unit.from));
    } else if (plain && unit.from + unit_values <= bytes) {
      CONVOY_UNROLL
      for (int j = 0; j < 4; ++j)
        words.word[j] = lane.template two_pixels<0>(image[unit.from + 2 * j] |
                                                    image[unit.from + 2 * j + 1] << 8);
    } else {
      CONVOY_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int value = unit.value + 2 * j;
        words.word[j] = pixel_value(lane, p, at, image, unit.y, unit.column, value) |
                        pixel_value(lane, p, at, image, unit.y, unit.column, value + 1) << 16;
      }
    }
    to_units[unit.to] = words;
  }
}

/// Where layer `i` of image `image` puts its spikes; `slot`: the image's place in the round.
template <class Net>
CONVOY_LANE Sink sink_of(const ResidentParams& p, const ResidentLayer& l, int i, int team,
                         Index image, int slot) {
  Sink sink;
  sink.shared = l.out_features ? p.at.part(i + 1) + l.out + slot * l.out_image : team + l.out;
  if (!Net::inner && i + 1 < Net::size(p)) return sink;
  const Index values = Index{l.out_h} * l.out_w * l.k;
  float* const y = p.y[i];
  sink.y = y == nullptr ? nullptr : y + image * values;
  sink.y_step = p.n * values;
  return sink;
}

template <class Net, int Phases, class Lane>
CONVOY_LANE void first_layer(const Lane& lane, const ResidentParams& p, const ResidentLayer& l,
                             const Team& team, const Sink& sink) {
  constexpr int tiles = Net::tasks.first_tiles;
  const auto* const from = reinterpret_cast<const WeightWords*>(lane.shared + l.weights);
  const int parts = (first_tiles(l.items, l.pool) + tiles - 1) / tiles;
  const auto weights = [&](int filters, int product, int phase) {
    return from[((product * l.channel_tiles + filters) * Phases + phase) * 32 + lane.lane];
  };
  if constexpr (Net::known) {
    // In registers, over all the tiles of the same filters.
    for (int filters = 0; filters < l.channel_tiles; ++filters) {
      WeightWords kept[Net::first_products][Phases];
      CONVOY_UNROLL
      for (int product = 0; product < Net::first_products; ++product) CONVOY_UNROLL
      for (int phase = 0; phase < Phases; ++phase)
        kept[product][phase] = weights(filters, product, phase);
      for (int part = team.warp; part < parts; part += team.warps)
        first_task<Net, Phases>(
            lane, p, l, team.memory, part * tiles, filters,
            [&](int product, int phase) { return kept[product][phase]; }, sink);
    }
  } else {
    for (int task = team.warp; task < parts * l.channel_tiles; task += team.warps) {
      const int filters = task / parts;
      first_task<Net, Phases>(
          lane, p, l, team.memory, task % parts * tiles, filters,
          [&](int product, int phase) { return weights(filters, product, phase); }, sink);
    }
  }
}

/// Task `number` of a later layer, whose tiles are `tiles`. Tasks that follow each other have the
/// same filters: warps that read the same weights do so at the same time.
template <class Net, int Tiles, int Columns>
CONVOY_LANE Task task_of(const ResidentLayer& l, int number, int tiles) {
  Task task;
  const int down = (tiles + Tiles - 1) / Tiles;
  task.tile = number % down * Tiles;
  task.tiles = tiles - task.tile;
  task.column = number / down * Columns;
  task.columns = there_are<Net, Columns>(l.channel_tiles, task.column);
  return task;
}
template <int Tiles, int Columns>
CONVOY_LANE int tasks_of(const ResidentLayer& l, int tiles) {
  return (tiles + Tiles - 1) / Tiles * ((l.channel_tiles + Columns - 1) / Columns);
}

/// Which of its layer's weights a lane has in column j of a task. Where there are fewer columns the
/// last one is made again.
template <class Lane>
CONVOY_LANE int weight_of(const Lane& lane, const ResidentLayer& l, const Task& task, int product,
                          int j) {
  const int column = task.column + (j < task.columns ? j : task.columns - 1);
  return (product * l.channel_tiles + column) * 32 + lane.lane;
}

template <class Net, class Lane>
CONVOY_LANE void convolution(const Lane& lane, const ResidentParams& p, const ResidentLayer& l,
                             const ResidentScale& of, const Team& team, const Sink& sink) {
  constexpr int tiles = Net::tasks.conv_tiles, columns = Net::tasks.columns;
  const int all = conv_tiles(l.items, l.pool), tasks = tasks_of<tiles, columns>(l, all);
  const auto* const from = reinterpret_cast<const WeightWords*>(lane.shared + l.weights);
  for (int number = team.warp; number < tasks; number += team.warps) {
    Task task = task_of<Net, tiles, columns>(l, number, all);
    task.tiles = there_are<Net, tiles>(all, task.tile);
    task.in = team.memory + l.in;
    task.items = l.items;
    spike_task<Net, tiles, 1>(
        lane, p, l, of, task,
        [&](int product, int j) { return from[weight_of(lane, l, task, product, j)]; },
        [&](int) { return sink; }, [&](int item) { return conv_pixel(item, 0, l.across, false); });
  }
}

/// Calls run(task, weights) for each task of a linear layer that is this warp's, once all warps are
/// done with the layer before.
template <class Net, int Tiles, int Columns, class Lane, class Run>
CONVOY_LANE void linear_tasks(const Lane& lane, const ResidentParams& p, const ResidentLayer& l,
                              int i, int images, Run run) {
  const bool shared = p.at.linear_at > 0;
  const auto* const from = reinterpret_cast<const WeightWords*>(
      (shared ? lane.shared + p.at.linear_at : static_cast<const unsigned char*>(p.linear)) +
      l.weights);
  const int all = conv_tiles(images, false), tasks = tasks_of<Tiles, Columns>(l, all);
  if (!shared && lane.warp() < tasks) {  // what the first products need is on its way
    const Task task = task_of<Net, Tiles, Columns>(l, lane.warp(), all);
    for (int product = 0; product < Net::tasks.ahead; ++product)
      if (product < l.products) lane.prefetch(from + weight_of(lane, l, task, product, 0));
  }
  lane.sync_cta();
  for (int number = lane.warp(); number < tasks; number += lane.warps()) {
    Task task = task_of<Net, Tiles, Columns>(l, number, all);
    task.in = p.at.part(i);
    task.items = images;
    run(task, [&](int product, int j) {
      return lane.either(from + weight_of(lane, l, task, product, j));
    });
  }
}

template <class Net, class Lane>
CONVOY_LANE void linear_layer(const Lane& lane, const ResidentParams& p, const ResidentLayer& l,
                              int i, Index first, int images) {
  constexpr int tiles = Net::tasks.linear_tiles, columns = Net::tasks.columns;
  if (l.mean)  // few outputs: small tasks
    linear_tasks<Net, 1, 1>(lane, p, l, i, images, [&](const Task& task, auto weights) {
      mean_task<Net>(lane, p, l, p.of[i], task, weights,
                     reinterpret_cast<float*>(lane.shared + p.at.part(i + 1)));
    });
  else
    linear_tasks<Net, tiles, columns>(lane, p, l, i, images, [&](const Task& task, auto weights) {
      spike_task<Net, tiles, Net::tasks.ahead>(
          lane, p, l, p.of[i], task, weights,
          [&](int item) { return sink_of<Net>(p, l, i, 0, first + item, item); },
          [](int) { return Place{}; });
    });
}

/// Logits and labels of a round; k: classes.
template <class Lane>
CONVOY_LANE void give_outputs(const Lane& lane, const ResidentParams& p, int k, Index first,
                              int images) {
  const auto* const logits = reinterpret_cast<const float*>(lane.shared + p.at.part(p.at.size));
  float* const y = p.y[p.at.size - 1];
  if (y != nullptr)
    for (int i = lane.thread; i < images * k; i += lane.threads()) y[first * k + i] = logits[i];
  if (p.labels == nullptr) return;
  for (int i = lane.thread; i < images; i += lane.threads()) {
    int best = 0;
    float most = logits[i * k];
    for (int j = 1; j < k; ++j) {
      const float logit = logits[i * k + j];
      if (!(logit > most)) continue;
      best = j;
      most = logit;
    }
    p.labels[first + i] = best;
  }
}

template <class Net, class Lane>
CONVOY_LANE void convolutions(const Lane& lane, const ResidentParams& p, const Team& team,
                              Index first, int images) {
  auto* const memory = reinterpret_cast<Words4*>(lane.shared + team.memory);
  if (Net::clear(p)) {
    for (int i = team.index; i < p.at.team_bytes / 16; i += team.size) memory[i] = Words4{};
    lane.sync_team(team.number, team.size);
  }
  const ResidentImage& at = Net::image(p);
  const int teams = p.at.teams(), image_bytes = at.h * at.w * at.c;
  for (int slot = team.number; slot < images; slot += teams) {
    const Index image = first + slot;
    const std::uint8_t* const pixels =
        (Net::tasks == few_tasks && p.x == nullptr ? p.image : p.x) + image * image_bytes;
    if (Net::convolutions(p) == 0) {  // the features of the first layer, which is linear
      put_image<Net>(lane, p, at, team, pixels, p.at.part(0) + slot * p.at.layers[0].in_row);
      continue;
    }
    put_image<Net>(lane, p, at, team, pixels, team.memory);
    if (slot + teams < images)
      for (int i = team.index * 128; i < image_bytes; i += team.size * 128)
        lane.prefetch(p.x + (image + teams) * image_bytes + i);
    lane.sync_team(team.number, team.size);
    Net::first_layer(p, [&](const ResidentLayer& l) {
      const Sink sink = sink_of<Net>(p, l, 0, team.memory, image, slot);
      if (l.phases == 4)
        first_layer<Net, 4>(lane, p, l, team, sink);
      else
        first_layer<Net, 2>(lane, p, l, team, sink);
    });
    Net::later_convolutions(p, [&](const ResidentLayer& l, int i) {
      lane.sync_team(team.number, team.size);
      convolution<Net>(lane, p, l, p.of[i], team, sink_of<Net>(p, l, i, team.memory, image, slot));
    });
    // What comes next writes where the last layer reads: the next image's units, or the next
    // round's zeros.
    lane.sync_team(team.number, team.size);
  }
}

/// To shared memory, 16 bytes a lane at a time, in the background.
template <class Lane>
CONVOY_LANE void fetch(const Lane& lane, int to, const void* from, int bytes) {
  for (int i = lane.thread * 16; i < bytes; i += lane.threads() * 16)
    lane.fetch16(to + i, static_cast<const unsigned char*>(from) + i);
  lane.end_fetch();
}

/// All of a CTA. Bits depend on nothing but the image: each sum is one warp's, in one order.
template <class Net, class Lane>
CONVOY_LANE void resident_cta(const Lane& lane, const ResidentParams& p, int cta, int ctas) {
  // Weights and constants are no launch's output: they need not wait for the previous one.
  fetch(lane, 0, p.constants, p.at.constants_bytes);
  fetch(lane, p.at.linear_at, p.linear, p.at.linear_at > 0 ? p.at.linear_bytes : 0);
  lane.wait_for_previous_launch();
  lane.template wait_for_fetches<1>();
  lane.sync_cta();
  Team team;
  team.warps = p.at.team;
  team.size = 32 * p.at.team;
  team.number = lane.warp() / team.warps;
  team.warp = lane.warp() % team.warps;
  team.index = team.warp * 32 + lane.lane;
  team.memory = p.at.team_at() + team.number * p.at.team_bytes;
  const Index end = p.n * (cta + 1) / ctas;
  for (Index first = p.n * cta / ctas; first < end; first += p.at.batch) {
    const int images = static_cast<int>(end - first < p.at.batch ? end - first : p.at.batch);
    convolutions<Net>(lane, p, team, first, images);
    if (p.at.convolutions == p.at.size) continue;
    lane.template wait_for_fetches<0>();  // for the linear weights; the layers begin with a barrier
    Net::linear_layers(
        p, [&](const ResidentLayer& l, int i) { linear_layer<Net>(lane, p, l, i, first, images); });
    lane.sync_cta();
    const ResidentLayer& last = p.at.layers[p.at.size - 1];
    if (!last.mean) continue;
    give_outputs(lane, p, last.k, first, images);
    lane.sync_cta();
  }
}

}  // namespace convoy::cuda::sm80
