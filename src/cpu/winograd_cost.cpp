// What a run of Winograd costs: the sizes of blocks worth trying and the model that ranks them.
#include <cmath>

#include "core/size.hpp"
#include "cpu/third_level.hpp"
#include "cpu/winograd.hpp"

namespace convoy::cpu::winograd {

std::vector<Tile> tiles(const Stage& stage, const Machine&, Index m) {
  std::vector<Tile> tiles{{"tiles12", 12, 0}, {"tiles24", 24, 0}, {"tiles48", 48, 0}};
  // Threads share V of all tiles: not where it is larger than any memory.
  const Geometry g = geometry(stage, m);
  const Size v = Size(stage.n) * g.tiles_an_image() * g.points * (Size(g.c) + 64);
  if (v.fits(Index{1} << 36)) {
    tiles.push_back({"shared24", 24, 1});
    tiles.push_back({"shared48", 48, 1});
  }
  return tiles;
}

Cost cost(const Stage& stage, const Tile& tile, const Machine& machine, Index m) {
  // Moving one element of V or M through its transform, in operations at two multiply-adds of eight
  // floats a cycle: measured on Zen 4 and Sapphire Rapids. Loads and stores set the pace, and wider
  // multiply-adds do not help them.
  const double input_flops = stage.stride.h == 2 ? 12 : 16, output_flops = 9;
  const double filter_flops = 16;  // the same for U, where a block makes it
  // Third-level cache and memory, as multiples of what a thread streams from memory with gaps.
  constexpr double l3_speed = 8, stream_speed = 3;
  constexpr double start_seconds = 8e-6;  // of one parallel loop

  const Geometry g = geometry(stage, m);
  const double threads = machine.threads, peak = machine.peak_flops / threads;
  const bool wide = machine.vector_floats == 16 && !machine.halves;
  const double transform_peak = wide ? peak / 2 : peak;
  // The share of the peak that the GEMMs reach: measured on the same two.
  const double multiply_share = wide ? 0.8 : 0.97;
  const double bandwidth = machine.memory_bandwidth / threads;
  const Index lanes = machine.vector_floats;
  const Index group = group_tiles(g, machine);
  const Index k = round_up(g.k, lanes), panels = (g.k + 2 * lanes - 1) / (2 * lanes);
  const Cut plan = cut(stage.n * g.tiles_an_image(), tile.a, machine.threads);
  const Block block = plan.block(plan.blocks - 1, group);
  const bool shared = tile.b > 0;

  const auto count = [](Index value) { return static_cast<double>(value); };
  const auto rounds = [&](double tasks) { return std::max(1.0, std::ceil(tasks / threads)); };
  const double tiles = count(plan.tiles), blocks = count(plan.blocks);
  const double points = count(g.points), channels = count(round_up(g.c, lanes));
  const double multiply = 2 * points * tiles * count(g.c) * count(k);
  const double input = input_flops * points * tiles * channels;
  const double output = output_flops * points * tiles * count(k);
  const double u_bytes = 4 * count(g.slice > 0 ? 9 : g.filters) * count(g.c) * count(k);
  const double filter = g.slice > 0 ? filter_flops * blocks * points * count(g.c) * count(k) : 0;
  const double v_bytes = 4 * points * tiles * channels;
  const double x_bytes = 4 * count(stage.n * g.h * g.w) * count(g.c);
  const double y_bytes = 4 * count(stage.n * g.out_h * g.out_w) * count(g.k);

  // Eight sums hide the latency of two multiply-adds a cycle; a group has two a tile.
  const double sums = 2 * count(block.count) / count(block.groups);
  // A panel of which half is wanted has half as many sums, and more loads than multiply-adds.
  const double half = k / lanes % 2 == 1 ? count(lanes) / count(k) : 0;
  const double share =
      multiply_share / ((1 - half) / std::min(1.0, sums / 8) + half / std::min(1.0, sums / 20));
  const double tasks = shared ? blocks * std::ceil(count(panels) / tile.b) : blocks;
  const double busiest = rounds(tasks) / tasks;  // part of the work that the busiest thread does
  const double input_part =
      shared ? rounds(blocks * count(block.groups)) / (blocks * count(block.groups)) : busiest;

  Cost cost;
  cost.flops = multiply + input + filter + output;
  cost.waste = 1 - count(stage.n * g.p * g.q) * count(g.k) * count(g.c) /
                       (tiles * count(m * m) * count(k) * channels);
  cost.bytes = x_bytes + u_bytes + y_bytes;
  cost.seconds = busiest * (multiply / share / peak + (output + filter) / transform_peak) +
                 input_part * input / transform_peak +
                 (shared ? 2 : 1) * (threads > 1 ? start_seconds : 0) +
                 (x_bytes + y_bytes) / (bandwidth * threads * stream_speed);
  // U, or what it is made of, passes by once a block, unless the second-level cache has room for it
  // beside V. A small part of a third level near its cores streams behind the GEMMs, less so behind
  // those of 512 bits (Zen 5); most of it is shared with others. The far one of a server with a
  // mesh delays them: measured on Sapphire Rapids.
  const double l2 = count(static_cast<Index>(machine.l2_bytes));
  const double l3 = count(static_cast<Index>(machine.l3_bytes));
  const bool far = far_third_level(machine);
  if (u_bytes > l2 / 2) {
    const double mesh = u_bytes > 4 * l2 ? 1.3 : 4;
    const double near = u_bytes > l3       ? stream_speed
                        : u_bytes > l3 / 4 ? 6
                        : far              ? 14
                        : wide             ? l3_speed
                                           : 3 * l3_speed;
    cost.seconds += busiest * blocks * u_bytes / (bandwidth * (wide && far ? mesh : near));
  }
  // A thread's first look at what others wrote of a shared V goes through that mesh too, line by
  // line.
  if (shared && far) cost.seconds += (1 - 1 / threads) * v_bytes / bandwidth;
  // V is written, then passes by once a panel, with less room for the hardware to look ahead.
  const double v = shared ? v_bytes : v_bytes / blocks;
  if (v > l2) {
    const double v_speed = far || v > l3 / 2 ? l3_speed / 2 : 1.5 * l3_speed;
    cost.seconds += busiest * count(panels + 2) * v_bytes / (bandwidth * v_speed);
  }
  return cost;
}

}  // namespace convoy::cpu::winograd
