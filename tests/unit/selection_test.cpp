// Which kernel and tile a plan takes, and the cost models that say so.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/kernel.hpp"
#include "cpu/depthwise/depthwise.hpp"
#include "cpu/families.hpp"
#include "cpu/few_filters/few_filters.hpp"
#include "cpu/first/first.hpp"
#include "cpu/first_winograd2/first_winograd2.hpp"
#include "cpu/grouped/grouped.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/register_tile.hpp"
#include "cpu/winograd/winograd.hpp"
#include "plain_options.hpp"
#include "plan/kernel_table.hpp"
#include "plan/segments.hpp"
#include "plan/select.hpp"

namespace convoy {
namespace {

TEST(Selection, DoesNotDependOnTheBatchOrTheThreads) {
  for (const std::string_view text :
       {"n1h14c256k512r3pad1+bias+relu+max2", "n1h56c64k64r1", "n1h32c3k64r3pad1+relu",
        "n1h8c128k128r3pad1+strict", "n1h20c8k8r5+if(1)+t2", "n1h1c256k128r1+bias"}) {
    Stage stage = parse_stage(text);
    std::string arithmetic;
    for (const Index n : {1, 2, 7, 64, 1000}) {
      for (const int threads : {1, 2, 8}) {
        stage.n = n;
        PlanOptions options = plain();
        options.threads = threads;
        const Selection selection = select(stage, machine_for(options), options, nullptr);
        if (arithmetic.empty()) arithmetic = selection.kernel().arithmetic();
        EXPECT_EQ(selection.kernel().arithmetic(), arithmetic) << text << " n " << n;
        if (stage.exact()) {
          EXPECT_TRUE(selection.kernel().exact());
        }
      }
    }
  }
}

TEST(Selection, EveryPredictionIsATime) {
  const Machine machine = machine_for(plain());
  for (const std::string_view text :
       {"n1h7c512k512r3pad1+bias+relu", "n4h32c64k128r3pad1+bias+relu+max2",
        "n8h32c3k256r3pad1+relu", "n256h28c1k8r5+bias+relu+max2", "n8h32c256k3r3pad1",
        "n1h56c64k256r1+bias", "n1000h1c256k128r1+bias", "n1h112c32k32r3pad1groups32+relu6",
        "u8:n1h16c3k8r3+norm+relu", "n1h224c3k64r7stride2pad3+relu+max3s2p1",
        "n2h12c8k16r5+if(1)+t2+max2"}) {
    const Stage stage = parse_stage(text);
    for (const Kernel* kernel : kernel_table()) {
      if (kernel->device() != machine.device.kind || !kernel->refusals(stage, machine).empty())
        continue;
      const std::vector<Tile> tiles = kernel->tiles(stage, machine);
      ASSERT_FALSE(tiles.empty()) << kernel->name() << " " << text;
      for (std::size_t i = 0; i < tiles.size(); ++i) {
        const Cost cost = kernel->cost(stage, tiles[i], machine);
        EXPECT_TRUE(std::isfinite(cost.seconds) && cost.seconds > 0)
            << kernel->name() << " " << text;
        EXPECT_TRUE(cost.waste >= 0 && cost.waste < 1) << kernel->name() << " " << text;
        EXPECT_GT(cost.flops, 0) << kernel->name() << " " << text;
        for (std::size_t j = 0; j < i; ++j)
          EXPECT_NE(tiles[i].name, tiles[j].name) << kernel->name() << " " << text;
      }
    }
  }
}

TEST(KernelTable, NamesAreUnique) {
  for (const Kernel* kernel : kernel_table())
    EXPECT_EQ(find_kernel(kernel->name(), kernel->device()), kernel) << kernel->name();
  EXPECT_EQ(find_kernel("none", DeviceKind::cpu), nullptr);
}

TEST(Selection, TuningChoosesAmongTilesOfOneArithmeticOnly) {
  const Stage stage = parse_stage("n4h16c32k32r3pad1+bias+relu+max2");
  const PlanOptions options = plain();
  const Machine machine = machine_for(options);
  const Selection guess = select(stage, machine, options, nullptr);
  for (const Verdict& verdict : guess.verdicts) {
    if (!verdict.fits()) continue;
    for (const RankedTile& ranked : verdict.tiles) {
      TuningCache cache;
      cache.set(machine, stage, {std::string(verdict.kernel->name()), ranked.tile.name, 1e-3});
      const Selection tuned = select(stage, machine, options, &cache);
      EXPECT_EQ(tuned.kernel().arithmetic(), guess.kernel().arithmetic());
      if (verdict.kernel->arithmetic() == guess.kernel().arithmetic()) {
        EXPECT_EQ(tuned.kernel().name(), verdict.kernel->name());
        EXPECT_EQ(tuned.tile.tile.name, ranked.tile.name);
        EXPECT_TRUE(tuned.tuned.has_value());
      }
    }
  }
}

// Kernels that the table does not have: cheaper than all of it, with or without by_name_only.
class Cheapest final : public Kernel {
 public:
  Cheapest(bool by_name_only, std::size_t stages, std::string_view arithmetic = "its own")
      : Kernel({.name = "cheapest",
                .arithmetic = arithmetic,
                .device = DeviceKind::cpu,
                .serves = serves_everything,
                .chain = serves_every_chain,
                .exact = true,
                .by_name_only = by_name_only,
                .least_stages = stages}) {}

 private:
  void refuse_chain(const Chain&, const Machine&, Reasons&) const override {}
  std::vector<Tile> chain_tiles(const Chain&, const Machine&) const override { return {{"only"}}; }
  Cost chain_cost(const Chain&, const Tile&, const Machine&) const override { return {1e-12}; }
  std::unique_ptr<Prepared> chain_prepare(const Chain&, const Tile&,
                                          const Machine&) const override {
    return nullptr;
  }
};

/// Its cost is whatever the test says.
class Costs final : public Kernel {
 public:
  explicit Costs(const Cost& cost)
      : Kernel({.name = "costs",
                .arithmetic = "its own",
                .device = DeviceKind::cpu,
                .serves = serves_everything,
                .exact = true}),
        cost_(cost) {}

 private:
  void refuse_chain(const Chain&, const Machine&, Reasons&) const override {}
  std::vector<Tile> chain_tiles(const Chain&, const Machine&) const override { return {{"only"}}; }
  Cost chain_cost(const Chain&, const Tile&, const Machine&) const override { return cost_; }
  std::unique_ptr<Prepared> chain_prepare(const Chain&, const Tile&,
                                          const Machine&) const override {
    return nullptr;
  }
  Cost cost_;
};

// It would win every comparison, or lose it, without a word.
TEST(Selection, ACostThatIsNoNumberIsAnError) {
  const Stage stage = parse_stage("n4h16c32k32r3pad1+bias+relu+max2");
  const Machine machine = machine_for(plain());
  EXPECT_EQ(rank(Costs({1e-6, 1, 0, 1}), stage, machine).size(), 1U);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double none : {std::nan(""), infinity, -infinity, -1.0}) {
    for (double Cost::*number : {&Cost::seconds, &Cost::flops, &Cost::waste, &Cost::bytes}) {
      Cost cost{1e-6, 1, 0, 1};
      cost.*number = none;
      const Costs kernel(cost);
      const Kernel* const table[] = {&kernel, &cpu::general()};
      try {
        select(stage, machine, plain(), nullptr, table);
        ADD_FAILURE() << none << " was taken";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("kernel costs"), std::string::npos)
            << error.what();
      }
    }
  }
  EXPECT_THROW(rank(Costs({0, 1, 0, 1}), stage, machine), Error) << "nothing takes no time";
}

std::vector<const Kernel*> table_and(const Kernel& kernel) {
  const auto table = kernel_table();
  std::vector<const Kernel*> all{&kernel};
  all.insert(all.end(), table.begin(), table.end());
  return all;
}

TEST(Selection, AKernelThatRunsByNameOnlyIsNeverChosen) {
  const Stage stage = parse_stage("n4h16c32k32r3pad1+bias+relu+max2");
  PlanOptions options = plain();
  const Machine machine = machine_for(options);
  const Selection without = select(stage, machine, options, nullptr);
  // By its own arithmetic, and as one more kernel of the arithmetic that is chosen anyway.
  for (const std::string_view arithmetic :
       {std::string_view("its own"), without.kernel().arithmetic()}) {
    SCOPED_TRACE(arithmetic);
    const Cheapest free(false, 1, arithmetic), named(true, 1, arithmetic);
    EXPECT_EQ(&select(stage, machine, options, nullptr, table_and(free)).kernel(), &free);
    const Selection selection = select(stage, machine, options, nullptr, table_and(named));
    EXPECT_EQ(selection.kernel().name(), without.kernel().name());
    ASSERT_EQ(selection.verdicts.front().kernel, &named);
    EXPECT_EQ(selection.verdicts.front().refusals,
              std::vector<std::string>{"runs only if you name it: --kernel cheapest"});
    // Not even where a cache of measurements names it.
    TuningCache cache;
    cache.set(machine, stage, {"cheapest", "only", 1e-12});
    EXPECT_EQ(select(stage, machine, options, &cache, table_and(named)).kernel().name(),
              without.kernel().name());
  }
}

TEST(Selection, AKernelThatRunsByNameOnlyIsChosenByName) {
  PlanOptions options = plain();
  const Machine machine = machine_for(options);
  options.kernel = "cheapest";
  for (const std::string_view text : {"n4h16c32k32r3pad1+relu", "n1h8c8k8r3 > n1h6c8k8r1"}) {
    const OwnedChain chain = parse_chain(text);
    const Cheapest named(true, chain.stages.size());
    EXPECT_EQ(&select(chain, machine, options, nullptr, table_and(named)).kernel(), &named);
  }
}

TEST(Segments, AKernelThatRunsByNameOnlyTakesNone) {
  const OwnedChain chain = parse_chain("n1h8c8k8r3pad1 > n1h8c8k8r1");
  const Machine machine = machine_for(plain());
  const Cheapest free(false, 2), named(true, 2);
  const std::vector<Segment> one = cut(chain, machine, plain(), table_and(free));
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].kernel, &free);
  const std::vector<Segment> apart = cut(chain, machine, plain(), table_and(named));
  ASSERT_EQ(apart.size(), 2U);
  EXPECT_EQ(apart[0].kernel, nullptr);
  EXPECT_EQ(apart[1].kernel, nullptr);
}

// What the cost models ask of an instruction set is what its loops were compiled with.
TEST(Cost, AsksForTheTilesThatTheLoopsHave) {
  const Machine machine = cpu_machine(1);
  const cpu::TileSizes sizes = cpu::tile_sizes(machine);
  const cpu::TileLoops& loops = cpu::tile_loops();
  EXPECT_EQ(sizes.lanes, loops.lanes);
  EXPECT_EQ(sizes.halves, loops.halves);
  for (std::size_t vectors = 0; vectors <= cpu::max_tile_vectors; ++vectors) {
    const auto pixels = static_cast<std::size_t>(sizes.max_pixels[vectors]);
    const auto windows = static_cast<std::size_t>(sizes.max_windows[vectors]);
    EXPECT_EQ(loops.row[vectors] != nullptr, sizes.row_pixels[vectors] > 0) << vectors;
    for (std::size_t i = 1; i <= cpu::max_tile_pixels; ++i)
      EXPECT_EQ(loops.plain[vectors][i] != nullptr, i <= pixels) << vectors << " " << i;
    for (std::size_t i = 1; i <= cpu::max_tile_pixels / 4; ++i)
      EXPECT_EQ(loops.pooled[vectors][i] != nullptr, i <= windows) << vectors << " " << i;
  }
  EXPECT_EQ(cpu::winograd::simd(2, 1).lanes, machine.vector_floats);
  EXPECT_EQ(cpu::depthwise_loops::loops().lanes, machine.vector_floats);
  EXPECT_EQ(cpu::grouped_loops::loops().lanes, machine.vector_floats);
  EXPECT_EQ(cpu::first_loops::loops().lanes, cpu::first_loops::row_lanes(machine.vector_floats));
  EXPECT_EQ(cpu::first_winograd2_loops::loops().lanes, machine.vector_floats);
  EXPECT_EQ(cpu::first_winograd2_loops::loops().max_vectors,
            cpu::first_winograd2_loops::max_vectors_of(machine.vector_registers));
  for (int filters = 1; filters <= cpu::few_filters_loops::max_filters; ++filters) {
    EXPECT_EQ(cpu::few_filters_loops::loops(filters).lanes, machine.vector_floats);
    EXPECT_EQ(cpu::few_filters_loops::loops(filters).pixels,
              cpu::few_filters_loops::pixels_of(filters, machine.vector_registers));
  }
}

TEST(Cost, EachClassOfCoresHasItsTable) {
  const auto cores = [](std::string_view isa, bool halves, bool mesh) {
    Machine machine;
    set_isa(machine, isa);
    machine.halves = halves;
    machine.mesh = mesh;
    return std::string(cpu::core_costs(with_threads(machine, 1)).cores);
  };
  EXPECT_EQ(cores("avx512", true, false), "Zen 4");
  EXPECT_EQ(cores("avx512", false, false), "Zen 5");
  EXPECT_EQ(cores("avx512", false, true), "Golden Cove server");
  EXPECT_EQ(cores("avx2", false, false), "AVX2");
  EXPECT_EQ(cores("avx2", false, true), "AVX2, L3 on a mesh");
  EXPECT_EQ(cores("neon", false, false), "NEON");
  EXPECT_EQ(cores("scalar", false, false), "AVX2");
  Machine machine;
  EXPECT_THROW(set_isa(machine, "avx3"), Error);
}

// Starting a second thread takes some 3 us.
TEST(Selection, OneThreadRunsWhatIsTooSmallToShare) {
  const Machine machine = with_threads(cpu_facts(), 2);
  for (const auto& [text, threads] : {std::pair("n1h2c4k4r1", 1),
                                      {"n1h1c16k10r1+bias+relu", 1},
                                      {"n2h56c64k128r3pad1+bias+relu", 2}}) {
    const Stage stage = parse_stage(text);
    const Selection selection = select(stage, machine, {}, nullptr);
    EXPECT_EQ(running(machine, selection).threads, threads) << text;
    const auto seconds = [&](int count) {
      const Machine other = with_threads(machine, count);
      return selection.kernel().cost(stage, selection.tile.tile, other).seconds;
    };
    EXPECT_EQ(selection.tile.cost.seconds, std::min(seconds(1), seconds(2))) << text;
    PlanOptions options;
    options.threads = 2;
    const Plan plan(stage, options);
    EXPECT_EQ(plan.threads(), 2) << "it stays the ceiling";
    EXPECT_EQ(plan.explain().find("1 thread of 2") != std::string::npos, threads == 1) << text;
    options.all_threads = true;
    EXPECT_EQ(select(stage, machine, options, nullptr).threads, 2) << text;
  }
}

TEST(Selection, FewerThreadsRunWhatIsTooSmallForAll) {
  const Machine machine = with_threads(cpu_facts(), 64);
  int before = 0;
  for (const char* text : {"n1h2c4k4r1", "n1h14c64k64r1", "n1h28c64k64r1", "n8h56c64k128r3pad1"}) {
    const Stage stage = parse_stage(text);
    const Selection selection = select(stage, machine, {}, nullptr);
    for (int threads = 1; threads <= 64; threads *= 2) {
      const Cost cost =
          selection.kernel().cost(stage, selection.tile.tile, with_threads(machine, threads));
      EXPECT_LE(selection.tile.cost.seconds, cost.seconds) << text << " with " << threads;
    }
    EXPECT_GE(selection.threads, before) << text;
    before = selection.threads;
  }
  EXPECT_EQ(before, 64);
  PlanOptions options;
  options.threads = 16;
  bool some = false;
  for (int channels = 8; channels <= 128 && !some; channels *= 2) {
    Stage stage = parse_stage("n1h14c8k8r1");
    stage.c = stage.k = channels;
    const int threads = select(stage, with_threads(cpu_facts(), 16), options, nullptr).threads;
    some = threads > 1 && threads < 16;
    if (!some) continue;
    const std::string text = Plan(stage, options).explain(), said = std::to_string(threads);
    EXPECT_NE(text.find(said + " threads of 16"), std::string::npos) << text;
  }
  EXPECT_TRUE(some);
}

// Weights of 26 MB are read once for each step of rows, which a server's mesh delays: there pairs
// of taps took 1.6 times as long as F(2x2, 3x3) when their cost did not know it.
TEST(Cost, PairsOfTapsDoNotStreamTheirWeightsThroughAMesh) {
  Machine server;  // a Sapphire Rapids
  set_isa(server, "avx512");
  server.mesh = true;
  server.l2_bytes = std::size_t{2} << 20;
  server.l3_bytes = std::size_t{105} << 20;
  const Machine machine = with_threads(server, 1);
  const auto least = [&](const Kernel& kernel, const Stage& stage) {
    double seconds = std::numeric_limits<double>::infinity();
    for (const Tile& tile : kernel.tiles(stage, machine))
      seconds = std::min(seconds, kernel.cost(stage, tile, machine).seconds);
    return seconds;
  };
  const Stage deep = parse_stage("n21h7w7c512k512r3pad1+strict");
  EXPECT_LT(least(cpu::winograd2(), deep), least(cpu::tap_pairs(), deep));
  const Stage stem = parse_stage("n1h224c3k64r7stride2pad3+bias+relu+max3s2p1");
  EXPECT_LT(least(cpu::tap_pairs(), stem), least(cpu::direct(), stem));
}

}  // namespace
}  // namespace convoy
