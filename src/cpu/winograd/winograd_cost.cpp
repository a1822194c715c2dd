// What a run of Winograd costs: the sizes of blocks worth trying and the model that ranks them.
#include <cmath>

#include "core/size.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/winograd/winograd.hpp"

namespace convoy::cpu::winograd {

namespace {

double count(Index value) {
  return static_cast<double>(value);
}

// What a run does and moves, of all threads together.
struct Work {
  Geometry g;
  bool shared = false;  // threads share V
  double threads = 1;
  double tiles = 0, blocks = 0, groups_a_block = 0, tiles_a_group = 0, panels = 0;
  double half = 0;  // the share of filters in panels of which half is wanted
  double multiply = 0, input = 0, output = 0, filter = 0;  // operations
  double x_bytes = 0, y_bytes = 0, u_bytes = 0, v_bytes = 0;
  double channels = 0, k = 0;             // in whole vectors
  double busiest = 1, busiest_input = 1;  // the part that the busiest thread does
  double chunks = 1;                      // of the filters, a task each, where threads share V
};

Work work_of(const Stage& stage, const Tile& tile, const Machine& machine, Index m) {
  const CoreCosts::Winograd& costs = core_costs(machine).winograd;
  Work work;
  const Geometry& g = work.g = geometry(stage, m);
  const Index lanes = machine.vector_floats;
  const Index k = round_up(g.k, lanes), panels = (g.k + 2 * lanes - 1) / (2 * lanes);
  const Index tiles = stage.n * g.tiles_an_image();
  work.shared = tile.b > 0;
  const Cut plan = work.shared
                       ? cut_shared(tiles, tile.a, (panels + tile.b - 1) / tile.b, machine.threads)
                       : cut(tiles, tile.a, machine.threads);
  const Block block = plan.block(plan.blocks - 1, group_tiles(g, machine));
  work.threads = machine.threads;
  work.tiles = count(plan.tiles);
  work.blocks = count(plan.blocks);
  work.groups_a_block = count(block.groups);
  work.tiles_a_group = count(block.count) / count(block.groups);
  work.panels = count(panels);
  work.half = k / lanes % 2 == 1 ? count(lanes) / count(k) : 0;
  work.k = count(k);
  work.channels = count(round_up(g.c, lanes));

  const double points = count(g.points), c = count(g.c);
  const double input_flops = g.stride == 2 ? costs.input_stride2_flops : costs.input_flops;
  work.multiply = 2 * points * work.tiles * c * work.k;
  work.input = input_flops * points * work.tiles * work.channels;
  work.output = costs.output_flops * points * work.tiles * work.k;
  if (g.slice > 0) work.filter = costs.filter_flops * work.blocks * points * c * work.k;
  work.u_bytes = 4 * count(g.slice > 0 ? 9 : g.filters) * c * work.k;
  work.v_bytes = 4 * points * work.tiles * work.channels;
  work.x_bytes = 4 * count(stage.n * g.h * g.w) * c;
  work.y_bytes = 4 * count(stage.n * g.out_h * g.out_w) * count(g.k);

  const auto busiest = [&](double tasks) {
    return std::max(1.0, std::ceil(tasks / work.threads)) / tasks;
  };
  if (work.shared) work.chunks = std::ceil(work.panels / count(tile.b));
  work.busiest = busiest(work.blocks * work.chunks);
  work.busiest_input = work.shared ? busiest(work.blocks * work.groups_a_block) : work.busiest;
  return work;
}

double compute_seconds(const Work& work, const Machine& machine) {
  const CoreCosts::Winograd& costs = core_costs(machine).winograd;
  const double peak = machine.peak_flops / work.threads;
  const double transform_peak = peak * costs.transform_share;
  // A group has two sums a tile. A panel of which half is wanted has half as many, and more loads
  // than multiply-adds.
  const double sums = 2 * work.tiles_a_group;
  const double share =
      costs.multiply_share / ((1 - work.half) / std::min(1.0, sums / costs.hiding_sums) +
                              work.half / std::min(1.0, sums / costs.half_panel_sums));
  return work.busiest *
             (work.multiply / share / peak + (work.output + work.filter) / transform_peak) +
         work.busiest_input * work.input / transform_peak;
}

// How often the busiest thread reads U from beyond its L2, as parts of U: all of it for each block.
// Where threads share V it keeps to some chunks of the filters, in this run and the next; what L2
// has room for of them is read once, or not again.
double u_reads(const Work& work, const Machine& machine) {
  const double room = static_cast<double>(machine.l2_bytes) / 2;
  if (work.u_bytes <= room) return 0;
  const double tasks = work.busiest * work.blocks * work.chunks;
  if (!work.shared || machine.threads == 1) return tasks / work.chunks;
  const double own = std::ceil(tasks / work.blocks) / work.chunks;
  if (work.u_bytes * own <= room) return 0;
  return work.u_bytes / work.chunks <= room ? own : tasks / work.chunks;
}

// From a small part of an L3 near its cores U is hidden behind the GEMMs, less so behind those of
// 512 bits. A mesh delays them. Each thread has its own way to L3; memory they share.
double u_seconds(const Work& work, const Machine& machine) {
  const CoreCosts::Winograd& costs = core_costs(machine).winograd;
  const double l2 = static_cast<double>(machine.l2_bytes);
  const double l3 = static_cast<double>(machine.l3_bytes);
  const double near = costs.u_near_l2s > 0 ? costs.u_near_l2s * l2 : l3 / 4;
  const double l3_bandwidth = core_costs(machine).thread_bandwidth;
  const double bandwidth =
      work.u_bytes > l3
          ? machine.memory_bandwidth / work.threads * costs.u_memory_speed
          : l3_bandwidth * (work.u_bytes > near ? costs.u_l3_speed : costs.u_near_speed);
  return u_reads(work, machine) * work.u_bytes / bandwidth;
}

// V is written, then read once for each panel, with less room for the hardware to look ahead. A
// thread's first look at what others wrote of it goes through a mesh line by line.
double v_seconds(const Work& work, const Machine& machine) {
  const CoreCosts::Winograd& costs = core_costs(machine).winograd;
  const double l3_bandwidth = core_costs(machine).thread_bandwidth;
  double seconds = 0;
  if (work.shared && machine.mesh) {
    const double seen = std::min(1.0, work.busiest * work.chunks);  // of the blocks, by a thread
    seconds += seen * (1 - 1 / work.threads) * work.v_bytes / (l3_bandwidth * costs.others_speed);
  }
  const double v = work.shared ? work.v_bytes : work.v_bytes / work.blocks;
  if (v > static_cast<double>(machine.l2_bytes)) {
    const bool far = v > static_cast<double>(machine.l3_bytes) / 2;
    const double near_speed =
        work.shared && work.threads > 1 ? costs.v_shared_speed : costs.v_near_speed;
    const double bandwidth = far ? machine.memory_bandwidth / work.threads * costs.v_far_speed
                                 : l3_bandwidth * near_speed;
    seconds += work.busiest * (work.panels + 2) * work.v_bytes / bandwidth;
  }
  return seconds;
}

}  // namespace

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
  const CoreCosts::Winograd& costs = core_costs(machine).winograd;
  const Work work = work_of(stage, tile, machine, m);
  const Geometry& g = work.g;
  Cost cost;
  cost.flops = work.multiply + work.input + work.filter + work.output;
  cost.waste = 1 - count(stage.n * g.p * g.q) * count(g.k) * count(g.c) /
                       (work.tiles * count(m * m) * work.k * work.channels);
  cost.bytes = work.x_bytes + work.u_bytes + work.y_bytes;
  cost.seconds = compute_seconds(work, machine) + u_seconds(work, machine) +
                 v_seconds(work, machine) +
                 (work.x_bytes + work.y_bytes) / (machine.memory_bandwidth * costs.stream_speed);
  if (work.threads > 1)
    cost.seconds += (work.shared ? 2 : 1) * (costs.loop_seconds + start_seconds(machine));
  return cost;
}

}  // namespace convoy::cpu::winograd
