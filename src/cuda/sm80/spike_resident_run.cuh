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
                                      const std::uint8_t* image, int row, int column, int value) {
  const ResidentImage& at = p.at.image;
  const int channels = at.channels();
  const int w = column + value / channels, c = value % channels;
  if (row < 0 || row >= at.h || w < 0 || w >= at.w) return 0;
  if (c == at.c) return half_one;
  const std::uint8_t u = image[(Index{row} * at.w + w) * at.c + c];
  if (p.values != nullptr) return lane.from_global(p.values + c * 256 + u);
  return lane.half_of(static_cast<float>(u) - 127.5F);
}

/// Units of an image, as ResidentImage says.
template <class Lane>
CONVOY_LANE void stage_image(const Lane& lane, const ResidentParams& p, const Team& team,
                             const std::uint8_t* image) {
  const ResidentImage& at = p.at.image;
  const int per_row = at.groups * at.units, all = at.rows * per_row, bytes = at.h * at.w * at.c;
  const bool plain = !at.ones && p.values == nullptr;
  for (int i = team.index; i < all; i += team.size) {
    const int row = i / per_row, in_row = i % per_row;
    const int group = in_row / at.units, unit = in_row % at.units;
    const int y = row - at.top, column = group * at.step - at.left, value = unit * unit_values;
    Words4 words;
    // What lies beyond a row's end has weights of 0 or makes columns that nobody keeps.
    const int from = (y * at.w + column) * at.c + value;
    if (plain && from + unit_values <= bytes &&
        reinterpret_cast<std::uintptr_t>(image + from) % 4 == 0) {
      const auto* const four = reinterpret_cast<const std::uint32_t*>(image + from);
      CONVOY_UNROLL
      for (int j = 0; j < 2; ++j) {
        const std::uint32_t u = lane.from_global(four + j);
        words.word[2 * j] = lane.centred(u & 255, u >> 8 & 255);
        words.word[2 * j + 1] = lane.centred(u >> 16 & 255, u >> 24);
      }
    } else if (plain && from + unit_values <= bytes) {
      CONVOY_UNROLL
      for (int j = 0; j < 4; ++j)
        words.word[j] = lane.centred(image[from + 2 * j], image[from + 2 * j + 1]);
    } else {
      CONVOY_UNROLL
      for (int j = 0; j < 4; ++j)
        words.word[j] = pixel_value(lane, p, image, y, column, value + 2 * j) |
                        pixel_value(lane, p, image, y, column, value + 2 * j + 1) << 16;
    }
    reinterpret_cast<Words4*>(lane.shared + team.memory)[i] = words;
  }
}

/// Where layer `i` of image `image` puts its spikes; `slot`: the image's place in the round.
CONVOY_LANE Sink sink_of(const ResidentParams& p, int i, int team, Index image, int slot) {
  const ResidentLayer& l = p.at.layers[i];
  const Index values = Index{l.out_h} * l.out_w * l.k;
  float* const y = p.y[i];
  Sink sink;
  sink.shared = l.out_features ? l.out + slot * l.out_image : team + l.out;
  sink.y = y == nullptr ? nullptr : y + image * values;
  sink.y_step = p.n * values;
  return sink;
}

template <class Lane>
CONVOY_LANE void first_layer(const Lane& lane, const ResidentParams& p, const Team& team,
                             const Sink& sink) {
  constexpr int tiles = first_task_tiles;
  const ResidentLayer& l = p.at.layers[0];
  const int parts = (first_tiles(l.items, l.pool) + tiles - 1) / tiles;
  for (int task = team.warp; task < parts * l.channel_tiles; task += team.warps) {
    const int tile = task % parts * tiles, filters = task / parts;
    if (l.phases == 4)
      first_task<4, tiles>(lane, p, l, team.memory, tile, filters, sink);
    else
      first_task<2, tiles>(lane, p, l, team.memory, tile, filters, sink);
  }
}

template <class Lane>
CONVOY_LANE void convolution(const Lane& lane, const ResidentParams& p, int i, const Team& team,
                             const Sink& sink) {
  constexpr int tiles = conv_task_tiles, columns = task_columns;
  const ResidentLayer& l = p.at.layers[i];
  const int parts = (conv_tiles(l.items, l.pool) + tiles - 1) / tiles;
  const int all = parts * ((l.channel_tiles + columns - 1) / columns);
  const auto* const weights = reinterpret_cast<const WeightWords*>(lane.shared + l.weights);
  for (int number = team.warp; number < all; number += team.warps) {
    Task task;
    task.in = team.memory + l.in;
    task.items = l.items;
    task.tile = number % parts * tiles;
    task.column = number / parts * columns;
    task.columns = l.channel_tiles - task.column;
    task.tiles = conv_tiles(l.items, l.pool) - task.tile;
    task.weights = weights + task.column * 32;
    spike_task<tiles, columns, task_steps, true>(
        lane, p, i, task, [&](int) { return sink; },
        [&](int item) { return conv_pixel(item, 0, l.across, false); });
  }
}

template <class Lane>
CONVOY_LANE void linear_layer(const Lane& lane, const ResidentParams& p, int i, Index first,
                              int images) {
  constexpr int tiles = linear_task_tiles, columns = task_columns;
  const ResidentLayer& l = p.at.layers[i];
  const int parts = (conv_tiles(images, false) + tiles - 1) / tiles;
  const int all = parts * ((l.channel_tiles + columns - 1) / columns);
  const auto* const weights =
      reinterpret_cast<const WeightWords*>(static_cast<const unsigned char*>(p.linear) + l.weights);
  for (int number = lane.warp(); number < all; number += lane.warps()) {
    Task task;
    task.in = l.in;
    task.items = images;
    task.tile = number % parts * tiles;
    task.column = number / parts * columns;
    task.columns = l.channel_tiles - task.column;
    task.tiles = conv_tiles(images, false) - task.tile;
    task.weights = weights + task.column * 32;
    if (l.mean)
      mean_task<tiles, columns>(lane, p, i, task);
    else
      spike_task<tiles, columns, task_steps, false>(
          lane, p, i, task, [&](int item) { return sink_of(p, i, 0, first + item, item); },
          [](int) { return Place{}; });
  }
}

/// Logits and labels of a round.
template <class Lane>
CONVOY_LANE void give_outputs(const Lane& lane, const ResidentParams& p, Index first, int images) {
  const int k = p.at.layers[p.at.size - 1].k;
  const auto* const logits = reinterpret_cast<const float*>(lane.shared + p.at.logits);
  float* const y = p.y[p.at.size - 1];
  if (y != nullptr)
    for (int i = lane.thread; i < images * k; i += lane.threads()) y[first * k + i] = logits[i];
  if (p.labels == nullptr) return;
  for (int i = lane.thread; i < images; i += lane.threads()) {
    int best = 0;
    for (int j = 1; j < k; ++j)
      if (logits[i * k + j] > logits[i * k + best]) best = j;
    p.labels[first + i] = best;
  }
}

template <class Lane>
CONVOY_LANE void convolutions(const Lane& lane, const ResidentParams& p, const Team& team,
                              Index first, int images) {
  auto* const memory = reinterpret_cast<Words4*>(lane.shared + team.memory);
  if (p.at.clear) {
    for (int i = team.index; i < p.at.team_bytes / 16; i += team.size) memory[i] = Words4{};
    lane.sync_team(team.number, team.size);
  }
  const int teams = p.at.teams(), image_bytes = p.at.image.h * p.at.image.w * p.at.image.c;
  for (int slot = team.number; slot < images; slot += teams) {
    const Index image = first + slot;
    stage_image(lane, p, team, p.x + image * image_bytes);
    if (slot + teams < images)
      for (int i = team.index * 128; i < image_bytes; i += team.size * 128)
        lane.prefetch(p.x + (image + teams) * image_bytes + i);
    lane.sync_team(team.number, team.size);
    first_layer(lane, p, team, sink_of(p, 0, team.memory, image, slot));
    for (int i = 1; i < p.at.convolutions; ++i) {
      lane.sync_team(team.number, team.size);
      convolution(lane, p, i, team, sink_of(p, i, team.memory, image, slot));
    }
    // What comes next writes where the last layer reads: the next image's units, or the next
    // round's zeros.
    lane.sync_team(team.number, team.size);
  }
}

/// All of a CTA. Bits depend on nothing but the image: each sum is one warp's, in one order.
template <class Lane>
CONVOY_LANE void resident_cta(const Lane& lane, const ResidentParams& p, int cta, int ctas) {
  auto* const constants = reinterpret_cast<Words4*>(lane.shared);
  for (int i = lane.thread; i < p.at.constants_bytes / 16; i += lane.threads())
    constants[i] = static_cast<const Words4*>(p.constants)[i];
  lane.sync_cta();
  Team team;
  team.warps = p.at.team;
  team.size = 32 * p.at.team;
  team.number = lane.thread / team.size;
  team.index = lane.thread % team.size;
  team.warp = team.index / 32;
  team.memory = p.at.team_at + team.number * p.at.team_bytes;
  const Index end = p.n * (cta + 1) / ctas;
  for (Index first = p.n * cta / ctas; first < end; first += p.at.batch) {
    const int images = static_cast<int>(end - first < p.at.batch ? end - first : p.at.batch);
    convolutions(lane, p, team, first, images);
    if (p.at.convolutions == p.at.size) continue;
    lane.sync_cta();
    for (int i = p.at.convolutions; i < p.at.size; ++i) {
      linear_layer(lane, p, i, first, images);
      lane.sync_cta();
    }
    if (!p.at.layers[p.at.size - 1].mean) continue;
    give_outputs(lane, p, first, images);
    lane.sync_cta();
  }
}

}  // namespace convoy::cuda::sm80
