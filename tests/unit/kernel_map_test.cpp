// What `explain --map` says of drawn points, against the definition of a convolution, and back.
// The source documents' own examples: kernel_map_figures_test.cpp; Winograd's:
// kernel_map_winograd_test.cpp; shared memory and pipelines: kernel_map_memory_test.cpp.
#include "inspect/kernel_map/kernel_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "convoy/error.hpp"
#include "core/machine.hpp"
#include "cuda/any/depthwise_tile.hpp"
#include "cuda/any/few_filters_layout.hpp"
#include "cuda/any/fma_tile.hpp"
#include "cuda/known_gpus.hpp"
#include "cuda/sm80/window_tile.hpp"
#include "cuda/sm90/few_layout.hpp"
#include "cuda/sm90/halo_layout.hpp"
#include "inspect/kernel_map/halo_map.hpp"
#include "inspect/kernel_map/window_box_map.hpp"
#include "kernel_map_points.hpp"
#include "plan/kernel_table.hpp"
#include "verify/random.hpp"

namespace convoy::inspect {
namespace {

void check_definition(const Stage& s, const Point& at) {
  const Product product = product_at(s, at.m, at.k, at.output.k);
  ASSERT_EQ(product.output, at.output) << to_text(s);
  ASSERT_EQ(product.tap, at.tap);
  ASSERT_EQ(product.input.inside, at.inside);
  ASSERT_EQ((std::array{product.input.n, product.input.h, product.input.w, product.input.c}),
            (std::array{at.output.n, at.h, at.w, at.c}));
  if (at.inside) {
    const Index element = s.layout == Layout::nhwc
                              ? ((at.output.n * s.h + at.h) * s.w + at.w) * s.c + at.c
                              : ((at.output.n * s.c + at.c) * s.h + at.h) * s.w + at.w;
    ASSERT_EQ(product.input.byte, element * static_cast<Index>(size_of(s.dtype)));
  }
  const auto back = output_that_reads(s, product.input, product.tap, at.output.k);
  ASSERT_TRUE(back.has_value());
  ASSERT_EQ(gemm_row(s, *back), at.m);
  ASSERT_EQ(gemm_column(s, product.tap), at.k);
}

/// Where a kernel holds an output and an operand, and what lies there by what brought it.
void check_kernel(const KernelMap& map, const Point& at) {
  const std::string repro = map.kernel() + " " + map.tile() + " " + to_text(map.stage());
  const Accumulator a = map.accumulator(at.output);
  const auto back = map.output_of(a.tile, a.thread, a.number);
  ASSERT_TRUE(back.has_value()) << repro;
  ASSERT_EQ(*back, at.output) << repro;
  ASSERT_EQ(map.tile_at(a.tile.x, a.tile.y), a.tile) << repro;
  const OperandPlace place = map.operand(at.output, at.tap);
  const InputElement there = place.slot < 0
                                 ? map.loaded(a.tile, place.thread, place.step, place.number)
                                 : map.in_slot(a.tile, place.step, place.in_slot);
  ASSERT_EQ(there.inside, at.inside) << repro << " in slot byte " << place.in_slot << place.name;
  if (!at.inside) return;
  ASSERT_EQ((std::array{there.n, there.h, there.w, there.c}),
            (std::array{at.output.n, at.h, at.w, at.c}))
      << repro;
  ASSERT_EQ(there.byte, input_of(map.stage(), at.output, at.tap).byte) << repro;
}

/// A register, and back.
void check_register(const KernelMap& map, const Point& at, int threads, int registers,
                    verify::Random& random) {
  const TilePlace tile = map.accumulator(at.output).tile;
  const int thread = static_cast<int>(random.between(0, threads - 1)),
            number = static_cast<int>(random.between(0, registers - 1));
  const auto output = map.output_of(tile, thread, number);
  if (!output) return;
  const Accumulator a = map.accumulator(*output);
  ASSERT_EQ(a.tile, tile) << to_text(map.stage());
  ASSERT_EQ(a.thread, thread) << to_text(map.stage());
  ASSERT_EQ(a.number, number) << to_text(map.stage());
}

/// A family's map of a stage in a drawn tile, and what its CTAs have.
struct Mapped {
  std::unique_ptr<KernelMap> map;
  int threads = 0, registers = 0;  // that hold sums; of one of them
};
template <class Tile>
const Tile& drawn_of(const std::vector<Tile>& tiles, verify::Random& random) {
  return tiles[static_cast<std::size_t>(random.between(0, static_cast<Index>(tiles.size()) - 1))];
}
Mapped window_of(const Stage& stage, const Machine& machine, verify::Random& random) {
  if (!cuda::sm80::window_refusals(stage, machine).empty()) return {};
  const auto tiles = cuda::sm80::window_tiles(stage, machine);
  const auto& t = drawn_of(tiles, random);
  auto map = map_window(stage, machine, t.name());
  const auto* const box = dynamic_cast<const WindowBoxMap*>(map.get());
  const int registers = box ? WindowBoxMap::registers * box->turns() : t.warp_m * t.warp_n / 32;
  return {std::move(map), t.threads(), registers};
}
Mapped halo_of(const Stage& stage, const Machine& machine, verify::Random& random) {
  const cuda::DeviceFacts device = cuda::h200();
  if (!cuda::sm90::halo_refusals(stage, device).empty() || !cuda::sm90::halo_serves(stage, device))
    return {};
  const auto tiles = cuda::sm90::halo_tiles(stage, device);
  const auto& t = drawn_of(tiles, random);
  return {map_halo(stage, machine, t.name()), 256, t.instruction_n() * t.instructions() / 2};
}
Mapped fma_of(const Stage& stage, const Machine& machine, verify::Random& random) {
  if (!cuda::fma_refusals(stage).empty()) return {};
  const auto tiles = cuda::fma_tiles(stage);
  const auto& t = drawn_of(tiles, random);
  return {map_fma(stage, machine, cuda::fma_tile_name(t)), cuda::fma_threads,
          t.thread_m * t.thread_n};
}

Mapped few_of(const Stage& stage, const Machine& machine, verify::Random&) {
  if (!cuda::sm90::few_refusals(stage, cuda::h200()).empty()) return {};
  auto map = map_few(stage, machine, {});
  const int registers = dynamic_cast<const FewMap&>(*map).registers();
  return {std::move(map), 256, registers};
}
Mapped depthwise_of(const Stage& stage, const Machine& machine, verify::Random& random) {
  if (!cuda::depthwise_refusals(stage).empty()) return {};
  const auto tiles = cuda::depthwise_tiles(stage);
  const auto& t = drawn_of(tiles, random);
  const auto layout = cuda::depthwise_layout(stage, t);
  return {map_depthwise(stage, machine, cuda::depthwise_tile_name(t)),
          layout.lanes * layout.across * layout.down,
          t.rows * t.columns * cuda::depthwise_channels(stage)};
}
Mapped few_filters_of(const Stage& stage, const Machine& machine, verify::Random& random) {
  if (!cuda::few_filters_refusals(stage).empty()) return {};
  const auto tiles = cuda::few_filters_tiles(stage);
  const int threads = drawn_of(tiles, random);
  return {map_few_filters(stage, machine, cuda::few_filters_tile_name(threads)), threads,
          cuda::few_filters_layout(stage).filters};
}

// 500 drawn stages; on each that a family takes, drawn points of a drawn tile of it.
TEST(KernelMap, AgreesWithTheDefinitionAndBack) {
  const Machine machine = cuda::machine_of(cuda::h200());
  verify::Random random(23);
  int padding = 0, all = 0;
  std::map<std::string, int> stages;  // of a kernel
  for (int drawn = 0; drawn < 500; ++drawn) {
    const Stage stage = draw_mapped(random).normalised();
    std::vector<Mapped> maps;
    for (const auto& family : {window_of, halo_of, few_of, fma_of, depthwise_of, few_filters_of}) {
      maps.push_back(family(stage, machine, random));
      if (maps.back().map)
        ++stages[maps.back().map->tile().starts_with("box") ? "window box"
                                                            : maps.back().map->kernel()];
      else
        maps.pop_back();
    }
    for (int i = 0; i < 12; ++i) {
      if (stage.pool && (shapes_of(stage).out_h == 0 || shapes_of(stage).out_w == 0)) break;
      const Point at = draw_point(stage, random);
      check_definition(stage, at);
      ++all, padding += at.inside ? 0 : 1;
      for (const Mapped& one : maps) {
        check_kernel(*one.map, at);
        check_register(*one.map, at, one.threads, one.registers, random);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(stages["window"], 300);
  EXPECT_GT(stages["window box"], 40);
  EXPECT_GT(stages["halo"], 60);
  EXPECT_GT(stages["fma"], 450);
  EXPECT_GT(stages["depthwise"], 20);
  EXPECT_GT(stages["few_filters"], 15);
  EXPECT_GT(stages["few"], 20);
  EXPECT_GT(padding, all / 20);
  EXPECT_LT(padding, all);
}

// Each output is held by one register of one thread of one tile.
TEST(KernelMap, EveryOutputHasOneRegister) {
  const Machine machine = cuda::machine_of(cuda::h200());
  for (const char* text :
       {"f16:n1h12c64k72r3pad1+max2", "f16:n3h9w7c40k40r3pad1", "f16:n5h9w11c64k64r3pad1groups8",
        "f16:n2h13c64k48r3groups2+max2", "f16:n2h13c200k6r3pad1+max2", "f16:n3h13c200k40r1"}) {
    const Stage stage = parse_stage(text).normalised();
    for (const auto& map : maps_of(stage, machine)) {
      const int threads = 256;  // or fewer
      std::set<std::array<Index, 4>> seen;
      for (const TilePlace& tile : map->first_tiles(1000000))
        for (int thread = 0; thread < threads; ++thread)
          for (int number = 0; number < 256; ++number) {
            std::optional<OutputIndex> at;
            try {
              at = map->output_of(tile, thread, number);
            } catch (const Error&) {  // beyond the CTA's threads, or a thread's registers
              break;
            }
            if (!at) continue;
            EXPECT_TRUE(seen.insert({at->n, at->p, at->q, at->k}).second)
                << text << " by " << map->kernel();
          }
      const Shapes shapes = shapes_of(stage);
      const Index p = stage.pool ? 2 * shapes.out_h : shapes.p,
                  q = stage.pool ? 2 * shapes.out_w : shapes.q;
      EXPECT_EQ(static_cast<Index>(seen.size()), stage.n * p * q * stage.k)
          << text << " by " << map->kernel() << " " << map->tile();
    }
  }
}

// Kernels between passes over memory: the inner kernel's map, of x and y as the stage has them.
TEST(KernelMap, PassesAroundAKernel) {
  const Machine machine = cuda::machine_of(cuda::h200());
  verify::Random random(31);
  const std::vector<std::string> kernels{
      "halo_pool",           "halo_padded",      "halo_nchw",          "window_pool",
      "halo_padded_nchw",    "window_nchw",      "fma_pool",           "few_filters_pool",
      "depthwise_pool",      "halo_neuron_pass", "window_neuron_pass", "fma_neuron_pass",
      "fma_neuron_pass_nchw"};
  std::map<std::string, int> stages;
  for (int drawn = 0; drawn < 900; ++drawn) {
    Stage stage = draw_mapped(random);
    if (random.chance(0.5)) stage.layout = Layout::nchw;
    if (random.chance(0.5)) {
      stage.pool = max_pool(3);
      stage.pool->stride = Extent(2), stage.pool->pad = Extent(1);
    }
    if (random.chance(0.3)) {
      stage.act = random.chance(0.5) ? lif(2, 1) : integrate_fire(1);
      stage.t = random.pick({1, 2, 3, 4}), stage.hold = random.chance(0.3);
    }
    if (!problems(stage).empty()) continue;
    stage = stage.normalised();
    for (const std::string& kernel : kernels) {
      std::unique_ptr<KernelMap> map;
      try {
        map = map_wrapped(kernel, stage, machine, {});
      } catch (const Error&) {  // does not take it
        continue;
      }
      ASSERT_EQ(map->kernel(), kernel);
      ++stages[kernel];
      const Shapes shapes = shapes_of(stage);
      if (stage.pool && (shapes.out_h == 0 || shapes.out_w == 0)) continue;
      for (int i = 0; i < 4; ++i) check_kernel(*map, draw_point(stage, random));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  for (const std::string& kernel : kernels) EXPECT_GT(stages[kernel], 2) << kernel;
}

// The list of wrappers is the kernel table's, as far as what they wrap has a map.
TEST(KernelMap, KnowsTheTablesWrappers) {
  for (const Kernel* kernel : kernel_table()) {
    const std::string name(kernel->name());
    if (kernel->device() != DeviceKind::cuda) continue;
    for (const std::string suffix : {"_pool", "_padded", "_nchw", "_neuron_pass"})
      if (name.ends_with(suffix)) {
        const std::string inner = name.substr(0, name.size() - suffix.size());
        EXPECT_EQ(is_mapped_on_gpu(name), is_mapped_on_gpu(inner)) << name;
      }
  }
  EXPECT_TRUE(is_mapped_on_gpu("halo_padded_nchw"));
  EXPECT_TRUE(is_mapped_on_gpu("halo_neuron_pass"));
  EXPECT_FALSE(is_mapped_on_gpu("first_nchw"));
  EXPECT_FALSE(is_mapped_on_gpu(""));
}

// A neuron's steps: the tiles of a place have one or several each, in order of time in one CTA;
// what belongs to step t reads the images of step t, and holds the same outputs.
TEST(KernelMap, ANeuronsStepsFollowEachOther) {
  const cuda::DeviceFacts device = cuda::h200();
  const Machine machine = cuda::machine_of(device);
  verify::Random random(29);
  int stages = 0, several = 0, pingpong = 0;
  for (int drawn = 0; drawn < 400; ++drawn) {
    Stage stage = draw_mapped(random);
    stage.act = random.chance(0.5) ? lif(2, 1) : integrate_fire(1);
    stage.t = random.pick({1, 2, 3, 4, 8}), stage.hold = random.chance(0.3);
    if (!problems(stage).empty()) continue;
    stage = stage.normalised();
    const Mapped halo = halo_of(stage, machine, random);
    if (!halo.map) continue;
    ++stages;
    const auto& map = dynamic_cast<const HaloMap&>(*halo.map);
    const Index in_tile = map.layout().time_steps;
    const std::string repro = map.tile() + " " + to_text(stage);
    several += in_tile > 1 ? 1 : 0;
    pingpong += map.tile().find(".pingpong") != std::string::npos ? 1 : 0;
    const Index steps = stage.hold ? 1 : stage.t;
    std::map<std::pair<Index, Index>, std::vector<TilePlace>> seen;  // of a place, by number
    for (const TilePlace& tile : map.first_tiles(1000000)) {
      seen[{tile.x, tile.y}].push_back(tile);
      ASSERT_EQ(map.in_step(map.tile_at(tile.x, tile.y), tile.t), tile) << repro;
    }
    const Point at = draw_point(stage, random);
    check_kernel(map, at);
    check_register(map, at, halo.threads, halo.registers, random);
    if (testing::Test::HasFatalFailure()) return;
    const Accumulator a = map.accumulator(at.output);
    const auto& tiles = seen[{a.tile.x, a.tile.y}];
    ASSERT_EQ(static_cast<Index>(tiles.size()) * in_tile, steps) << repro;
    const OperandPlace place = map.operand(at.output, at.tap);
    for (Index t = 0; t < steps; ++t) {
      const TilePlace& first = tiles[static_cast<std::size_t>(t / in_tile)];
      ASSERT_EQ(first.t, t / in_tile * in_tile) << repro;  // numbers rise with time
      const TilePlace tile = map.in_step(first, t);
      // The steps of a tile are groups of eight columns that follow each other, four registers
      // each.
      const int group = static_cast<int>(t % in_tile), number = a.number + 4 * group;
      ASSERT_EQ(map.output_of(tile, a.thread, number), std::optional(at.output)) << repro;
      if (in_tile > 1) {
        ASSERT_EQ(map.output_of(first, a.thread, number).has_value(), group == 0) << repro;
      }
      const int row = HaloMap::swizzled128(place.in_slot) + group * map.layout().group_stride;
      const InputElement there = map.in_slot(tile, place.step, HaloMap::swizzled128(row));
      ASSERT_EQ(there.inside, at.inside) << repro;
      if (!at.inside) continue;
      ASSERT_EQ((std::array{there.n, there.h, there.w, there.c}),
                (std::array{at.output.n + t * stage.n, at.h, at.w, at.c}))
          << repro;
    }
  }
  EXPECT_GT(stages, 60);
  EXPECT_GT(several, 5);
  EXPECT_GT(pingpong, 5);
}

TEST(KernelMap, RefusesWhatIsNotThere) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const Stage stage = parse_stage("f16:n2h15c64k64r3pad1+max2");
  const auto map = map_window(stage, cuda::machine_of(cuda::h200()), {});
  EXPECT_NE(message([&] { map->accumulator({0, 15, 0, 0}); }).find("0 to 14"), std::string::npos);
  EXPECT_NE(message([&] { map->accumulator({0, 14, 0, 0}); }).find("no window"), std::string::npos);
  EXPECT_NE(message([&] { map->tile_at(100, 0); }).find("grid has"), std::string::npos);
  EXPECT_NE(message([&] { map->thread_step(map->tile_at(0, 0), 999, 0); }).find("threads 0 to"),
            std::string::npos);
  EXPECT_NE(message([&] { map->thread_step(map->tile_at(0, 0), 0, 99); }).find("steps 0 to 17"),
            std::string::npos);
  EXPECT_NE(message([&] {
              make_kernel_map({stage, "cpu", "general", "", 1});
            }).find("has no map"),
            std::string::npos);
  EXPECT_NE(message([&] {
              make_kernel_map({stage, "h200", "winograd2", "", 1});
            }).find("has no map"),
            std::string::npos);
  EXPECT_NE(message([&] {
              make_kernel_map({parse_stage("n1h8c3k4r3"), "h200", "halo", "", 1});
            }).find("no map"),
            std::string::npos);
}

}  // namespace
}  // namespace convoy::inspect
