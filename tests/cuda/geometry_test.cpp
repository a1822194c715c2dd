// The Hopper families' index maps, checked on the host: what the copy engine puts where, and what
// the tensor cores then read there.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "bench/fit/h200.hpp"
#include "cuda/divide.hpp"
#include "cuda/sm90/few.hpp"
#include "cuda/sm90/first.hpp"
#include "cuda/sm90/halo_layout.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "verify/source_path.hpp"

namespace convoy::cuda::sm90 {
namespace {

std::vector<Stage> stages_of(const char* list) {
  return read_shape_list(source_path("tests/cuda/") + list);
}

// Awkward ones, and what they run where a neuron is a pass of its own: f32 sums.
std::vector<Stage> halo_stages() {
  std::vector<Stage> all = stages_of("halo-stages.txt");
  for (const Stage& stage : stages_of("halo_neuron_pass-stages.txt"))
    all.push_back(stage_of_sums(stage));
  return all;
}

TEST(Divisor, DividesExactly) {
  std::mt19937 random(1);
  for (int d = 1; d <= 3000; ++d) {
    const Divisor divisor(d);
    for (int i = 0; i < 50; ++i) {
      const int limit = static_cast<int>(std::min<std::uint64_t>(
          (std::uint64_t{1} << 32) / static_cast<unsigned>(d) - 1, 0x7FFFFFFF));
      const int n = static_cast<int>(random() % static_cast<unsigned>(limit));
      int quotient = n;
      const int remainder = divisor.reduce(quotient);
      ASSERT_EQ(quotient, n / d) << n << " / " << d;
      ASSERT_EQ(remainder, n % d);
    }
  }
}

// For every tap and every column of the pixel operand: the pixel that the descriptor reaches in the
// box is the one the convolution asks for.
TEST(Halo, TapsReachTheirPixels) {
  for (const Stage& stage : halo_stages()) {
    for (const HaloTile& tile : halo_tiles(stage, h200())) {
      const HaloLayout l = halo_layout(stage, tile, h200());
      const bool images = tile.images_first();
      for (int box = 0; box < l.slot_chunks * l.boxes; ++box) {
        const int v = box % l.boxes, chunk = box / l.boxes;
        const int in_slot = tile.deep > 0 ? v * l.slot_chunks + chunk : 0;
        const TapBox& reads = l.box[v];
        ASSERT_EQ(l.box_place[v].column * l.box_x, reads.dx);
        ASSERT_EQ(l.box_place[v].row * l.box_y, reads.dy);
        for (int t = chunk * l.taps + reads.first; t < chunk * l.taps + reads.first + reads.count;
             ++t) {
          const auto shift = l.tap_shift[t];
          ASSERT_EQ((shift & opens_slot) != 0, tile.deep > 0 ? t == 0 : t == reads.first);
          const int tap = l.tap_index[static_cast<std::size_t>(t % l.taps)];
          const int r = tap / static_cast<int>(stage.s), s = tap % static_cast<int>(stage.s);
          for (int g = 0; g < (tile.schedule == Schedule::rows ? 2 : 1); ++g) {
            for (int i = 0; i < tile.instructions(); ++i) {
              for (int column = 0; column < tile.instruction_n(); ++column) {
                const int group = column / 8, inner = column % 8;
                const int row =
                    (g * l.warpgroup_stride + (shift & ~opens_slot) * 16 - in_slot * l.x_box +
                     i * l.instruction_stride + group * l.group_stride) /
                        128 +
                    inner;
                int x, y, n;  // in the box
                const int first = images ? l.box_n : l.box_w, rest = row / first / l.time_steps;
                const int step = row / first % l.time_steps;
                if (images)
                  n = row % first, x = rest % l.box_w, y = rest / l.box_w;
                else
                  x = row % first, y = rest % l.box_h, n = rest / l.box_h;
                const int out_step = group % l.time_steps;
                int out_x, out_y, out_n;  // in the tile
                if (tile.inner == Inner::line)
                  out_n = 0, out_x = column, out_y = 0;
                else if (tile.inner == Inner::brick)
                  out_n = column % tile.bn, out_x = column / tile.bn / l.time_steps % tile.bw,
                  out_y = column / tile.bn / l.time_steps / tile.bw;
                else if (images)
                  out_n = inner, out_x = group, out_y = i;
                else
                  out_n = tile.bn > 1 ? i : 0, out_x = inner + (tile.bw > 8 ? 8 * i : 0),
                  out_y = group / l.time_steps;
                if (tile.inner == Inner::line)
                  out_x += g * tile.bw;
                else
                  out_y += g * tile.bh;
                ASSERT_GE(row, 0);
                ASSERT_LT(row, l.box_w * l.box_h * l.box_n * l.time_steps);
                ASSERT_EQ(step, out_step);
                ASSERT_EQ(reads.dx + x * stage.stride.w, out_x * stage.stride.w + s * stage.dil.w)
                    << to_text(stage) << ' ' << tile.name();
                ASSERT_EQ(reads.dy + y * stage.stride.h, out_y * stage.stride.h + r * stage.dil.h)
                    << to_text(stage) << ' ' << tile.name();
                ASSERT_EQ(n, out_n);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Halo, EveryTapOnceInAnOrderOfTheStageAlone) {
  for (const Stage& stage : halo_stages()) {
    std::vector<int> order;
    for (const HaloTile& tile : halo_tiles(stage, h200())) {
      const HaloLayout l = halo_layout(stage, tile, h200());
      const std::vector<int> own(l.tap_index.begin(), l.tap_index.begin() + l.taps);
      if (order.empty()) order = own;
      EXPECT_EQ(own, order) << tile.name();
    }
    ASSERT_EQ(static_cast<Index>(order.size()), stage.r * stage.s);
    std::vector<int> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], static_cast<int>(i));
  }
}

TEST(Halo, LayoutsFitAndRingsCantLock) {
  for (const Stage& stage : halo_stages()) {
    const std::vector<HaloTile> tiles = halo_tiles(stage, h200());
    ASSERT_FALSE(tiles.empty()) << to_text(stage);
    for (const HaloTile& tile : tiles) {
      const HaloLayout l = halo_layout(stage, tile, h200());
      EXPECT_LE(l.shared_bytes, 232448);
      EXPECT_LE(8 * (2 * l.x_slots + 2 * l.w_slots + 2), 1024);
      EXPECT_EQ(l.slot_taps() % l.slab_taps, 0);
      EXPECT_EQ(l.slot_chunks % l.load_chunks, 0);
      // The consumer holds two slabs while it waits for a third, and boxes likewise where a box has
      // one slab; but no slot is taken twice where the rings hold a CTA's only tile.
      bool single = false;
      for (int v = 0; v < l.boxes; ++v)
        single |= (tile.deep > 0 ? l.slot_taps() : l.box[v].count) == l.slab_taps;
      // Weights that wait for the first pixels belong to the slot of those, so that it is not given
      // back, and filled anew, under the wait.
      const int slot_taps = tile.deep > 0 ? l.slot_taps() : static_cast<int>(l.box[0].count);
      EXPECT_TRUE(l.early_slabs == std::numeric_limits<int>::max() ||
                  l.early_slabs + 1 < slot_taps / l.slab_taps)
          << to_text(stage) << ' ' << tile.name();
      const bool whole = l.grid == l.tiles() && halo_turns(stage, tile) == 1 &&
                         l.x_slots == l.slots_a_tile() && l.w_slots == l.slabs_a_tile();
      EXPECT_TRUE(whole || l.x_slots >= (single ? 3 : 2)) << to_text(stage) << ' ' << tile.name();
      EXPECT_TRUE(whole || tile.resident || l.w_slots >= 3) << to_text(stage) << ' ' << tile.name();
      if (tile.resident) {
        EXPECT_TRUE(l.grid % l.k_blocks == 0) << tile.name();
      }
    }
  }
}

TEST(Halo, TensorMapsAreLegal) {
  alignas(16) static char memory[16];
  for (const Stage& stage : halo_stages()) {
    for (const HaloTile& tile : halo_tiles(stage, h200())) {
      const HaloLayout l = halo_layout(stage, tile, h200());
      for (const TensorMapArgs& map :
           {halo_x_map(stage, tile, l, stage.c), halo_w_map(stage, tile, l),
            halo_y_map(stage, tile, stage.k)}) {
        const std::vector<std::string> found = problems(map, memory);
        EXPECT_TRUE(found.empty()) << to_text(stage) << ' ' << tile.name() << ": " << found.front();
      }
    }
  }
}

// The pixels that a wgmma core matrix reads, by the addresses of the layout, are the ones that the
// taps ask for. Unit i of a row begins at pixel stride * i, as in first_load.cuh.
TEST(First, CoreMatricesHoldTheirTaps) {
  for (const Stage& stage : stages_of("first-stages.txt")) {
    const FirstLayout l = first_layout(stage, h200());
    const int u = static_cast<int>(stage.stride.h);
    for (int slot = 0; slot < l.row_taps; slot += 2) {
      for (int column = 0; column < 16; ++column) {
        const int address = column / 8 * 128 + slot / 4 * l.step_stride +
                            slot / 2 % 2 * l.k_stride + column % 8 * 16;
        ASSERT_EQ(u * (address / 16), u * column + slot) << to_text(stage) << " slot " << slot;
        ASSERT_LT(address, l.pitch) << to_text(stage);
      }
    }
    EXPECT_GE(l.row_taps, stage.s + l.lead);
    EXPECT_LE(l.shared_bytes, 232448);
  }
}

// Every column of y is given once: by the tiles of a run, without the first column of the first
// tile where windows overlap and another run lies before.
TEST(First, RunsGiveEveryColumnOnce) {
  int long_runs = 0;
  for (const Stage& stage : stages_of("first-stages.txt")) {
    SCOPED_TRACE(to_text(stage));
    const FirstLayout l = first_layout(stage, h200());
    const Shapes shapes = shapes_of(stage);
    const bool overlap = stage.pool && stage.pool->window == Extent(3);
    std::vector<int> given(static_cast<std::size_t>(shapes.out_w));
    for (int run = 0; run < l.runs_x; ++run) {
      for (int tile = 0; tile < l.run; ++tile) {
        const int x = run * l.run_pitch + tile * l.out_w,
                  skip = overlap && run > 0 && tile == 0 ? 1 : 0;
        for (int i = x + skip; i < std::min<int>(x + l.out_w, static_cast<int>(shapes.out_w)); ++i)
          ++given[static_cast<std::size_t>(i)];
      }
    }
    EXPECT_EQ(given, std::vector<int>(given.size(), 1));
    EXPECT_GE(l.runs_y * l.out_h, shapes.out_h);
    EXPECT_TRUE(l.k_blocks > 1 || l.bricks % 2 == 0) << "a ring for each consumer";
    long_runs += l.run > 1;
  }
  EXPECT_GE(long_runs, 3) << "the list should have some";
}

TEST(First, LongRunsWhereTheyLeaveFewerTiles) {
  const auto run = [](const char* stage) { return first_layout(parse_stage(stage), h200()).run; };
  // A whole row of tiles: 256 runs of 7 for 264 warpgroups; tiles by themselves would be 8 each.
  EXPECT_EQ(run("f16:n32h224c3k64r7stride2pad3+bias+relu+max3s2p1"), 7);
  EXPECT_EQ(run("f16:n1h224c3k64r7stride2pad3+bias+relu+max3s2p1"), 1);
  EXPECT_EQ(run("f16:n32h224c3k64r7stride2pad3+bias+relu"), 1);  // no window overlaps
  EXPECT_EQ(run("f16:n32h224c3k128r7stride2pad3+max3s2p1"), 1);  // each tile has two blocks
}

TEST(Few, TilesCoverTheOutputAndFitInSharedMemory) {
  for (const Stage& stage : stages_of("few-stages.txt")) {
    SCOPED_TRACE(to_text(stage));
    const FewLayout l = few_layout(stage, h200());
    const Shapes shapes = shapes_of(stage);
    const int window = stage.pool ? 2 : 1;
    EXPECT_EQ(l.out_w % window, 0);
    EXPECT_EQ(l.out_h % window, 0);
    EXPECT_EQ(l.box_w, l.out_w + stage.s - 1);
    EXPECT_EQ(l.box_h, l.out_h + stage.r - 1);
    EXPECT_LE(l.box_w * l.box_h, 64 * l.blocks);
    EXPECT_LE(l.blocks, few_blocks);
    EXPECT_LE(stage.k * stage.r * stage.s, l.columns);
    if (l.flat) {
      EXPECT_GE(few_tiles(stage, l) * l.out_w, stage.n * shapes.out_h * shapes.out_w);
      EXPECT_LE(l.blocks * l.columns, few_flat_columns);
      EXPECT_GT(3 * (l.shared_bytes + 1024), 228 << 10) << "no third CTA";
      EXPECT_LE(2 * (l.shared_bytes + 1024), 228 << 10) << "two CTAs on a multiprocessor";
    } else {
      EXPECT_GE(l.tiles_x * l.out_w, shapes.out_w * window);
      EXPECT_GE(l.tiles_y * l.out_h, shapes.out_h * window);
    }
    // Weights, slots and z one after the other, or z over the slots; then the barriers.
    const int weights = l.resident ? l.chunks * l.w_bytes : 0,
              z = static_cast<int>(stage.k * stage.r * stage.s) * l.z_pitch * 4,
              slots = l.slots * l.slot_bytes;
    EXPECT_GE(l.slot_bytes, l.blocks * 64 * 128 + (l.resident ? 0 : l.w_bytes));
    EXPECT_LE(weights + (l.z_over_slots ? std::max(slots, z) : slots + z), l.barriers);
    EXPECT_LE(l.barriers + 8 * (2 * l.slots + 1) + 1024, l.shared_bytes);
    EXPECT_LE(l.shared_bytes, 232448);
  }
}

TEST(Few, PixelsLieInALineWhereNoTapLooksBeside) {
  EXPECT_TRUE(few_layout(parse_stage("f16:n8h256c64k2r1+bias"), h200()).flat);
  EXPECT_FALSE(few_layout(parse_stage("f16:n8h256c64k2r1+bias+max2"), h200()).flat);
  EXPECT_FALSE(few_layout(parse_stage("f16:n8h256c64k2r1pad1+bias"), h200()).flat);
  EXPECT_FALSE(few_layout(parse_stage("f16:n8h256c64k2r1s2+bias"), h200()).flat);
}

// Membranes stay in a warpgroup's registers: it must take all tiles of a place, one after the
// other.
TEST(HaloNeurons, AWarpgroupTakesAllStepsOfAPlace) {
  for (const Stage& stage : halo_stages()) {
    if (!stage.act.is_neuron()) continue;
    const Shapes shapes = shapes_of(stage);
    for (const HaloTile& tile : halo_tiles(stage, h200())) {
      SCOPED_TRACE(to_text(stage) + " " + tile.name());
      const int turns = static_cast<int>(halo_turns(stage, tile));
      ASSERT_EQ(Index{turns} * tile.time_steps, halo_inputs(stage));
      const HaloLayout l = halo_layout(stage, tile, h200());
      if (tile.inner != Inner::line) {
        EXPECT_GE(l.tiles_x * l.cta_w, shapes.q);  // each pixel has a membrane
        EXPECT_GE(l.tiles_y * l.cta_h, shapes.p);
      }
      const int places = halo_places_of(stage, tile, l, stage.n), grid = halo_grid_of(l, places),
                tiles = halo_tiles_of(stage, tile, l, stage.n);
      const Divisor by_grid(grid), by_turns(turns);
      std::set<int> met;
      for (int block = 0; block < grid; ++block) {
        for (int g = 0; g < (l.pingpong ? 2 : 1); ++g) {
          int due = 0, last = -1;
          for (int t = block + g * grid; t < tiles; t += l.pingpong ? 2 * grid : grid) {
            const auto [place, turn] = turn_of(t, by_grid, by_turns, l.pingpong);
            ASSERT_EQ(turn, due);
            ASSERT_TRUE(turn == 0 || place == last);
            if (turn == 0) {
              ASSERT_TRUE(met.insert(place).second);
            }
            if (tile.resident) {
              ASSERT_EQ(place % l.k_blocks, block % l.k_blocks);
            }
            last = place;
            due = (due + 1) % turns;
          }
          EXPECT_EQ(due, 0);
        }
      }
      for (int place = 0; place < places; ++place) EXPECT_TRUE(met.contains(place)) << place;
    }
  }
}

TEST(Refusals, NameEveryReason) {
  const Stage stage = parse_stage("f16:n1h8c12k20r3stride2pad1groups4+max3s2p1+keep(pre)");
  EXPECT_EQ(halo_refusals(stage, h200()).size(), 5u);  // C, K, groups, keep, pool
  DeviceFacts ampere = h200();
  ampere.major = 8;
  const std::vector<std::string> why = first_refusals(parse_stage("f16:n1h8c3k64r3pad1"), ampere);
  ASSERT_EQ(why.size(), 1u);
  EXPECT_NE(why.front().find("8.0"), std::string::npos);
  EXPECT_TRUE(few_refusals(parse_stage("f16:n1h8c64k3r3pad1+relu"), h200()).empty());
  EXPECT_FALSE(few_refusals(parse_stage("f16:n1h8c64k8r3pad1+relu"), h200()).empty());
}

TEST(TensorMap, NamesEveryBrokenRule) {
  TensorMapArgs map{.dtype = DType::i32, .rank = 2};
  map.size = {64, 0};
  map.stride = {0, 100};
  map.box = {128, 300};
  map.step = {1, 9};
  const std::vector<std::string> found =
      problems(map, reinterpret_cast<const void*>(std::uintptr_t{8}));
  EXPECT_EQ(found.size(), 7u);  // type, address, size, box, step, stride, swizzle
}

}  // namespace
}  // namespace convoy::cuda::sm90
