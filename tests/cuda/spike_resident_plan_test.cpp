// Kernel `spike_resident`: what it refuses, its layouts, its costs and when a network is run by it.
#include "cuda/sm80/spike_resident_plan.hpp"

#include <gtest/gtest.h>

#include "bench/fit/h200.hpp"
#include "cuda/families.hpp"
#include "cuda/sm80/spike_resident.hpp"
#include "gpu_case.hpp"
#include "plan/segments.hpp"
#include "spike_resident_chains.hpp"

namespace convoy::cuda::sm80 {
namespace {

TEST(SpikeResident, RefusesWithTheBytesThatItNeeds) {
  const OwnedChain chain = parse_chain(
      "constants > u8:n1h64c3k64r3pad1out(f32)+if(1)+t4+hold > n1h64c64k256r3pad1+if(1)+t4", true);
  const Reasons why = resident_refusals(chain);
  ASSERT_EQ(why.size(), 1U);
  EXPECT_NE(why.front().find(" bytes of shared memory, expected at most 232448"), std::string::npos)
      << why.front();
}

// The stage before a mean has no neuron. It was taken with an activation, which was then left out.
TEST(SpikeResident, RefusesAnActivationBeforeTheMean) {
  const auto why = [](const char* last) {
    const std::string text =
        "constants > u8:n1h8c1k8r3out(f32)+if(1)+hold > n1h6c8k8r3+if(1) > n1h1w1c128k10r1" +
        std::string(last) + " > mean";
    return resident_refusals(parse_chain(text, true));
  };
  EXPECT_EQ(why(""), Reasons());
  EXPECT_EQ(why("+relu"), Reasons{"stage 3: the activation is relu, expected none, if or lif"});
}

// The shipped network: what the study's prototype had.
TEST(SpikeResident, ShippedNetworkTakesItsImagesInOneRound) {
  const OwnedChain chain = listed().front();
  const auto layouts = resident_layouts(chain, h200());
  EXPECT_EQ(layouts.front().team, 1);
  EXPECT_GE(best_layout(layouts, 10'000, h200()).batch, 76);
  EXPECT_TRUE(best_layout(layouts, 10'000, h200()).warpgroups);
  for (const Index n : {1, 132, 396, 397, 528, 1'000}) {
    const ResidentLayout& best = best_layout(layouts, n, h200());
    EXPECT_TRUE(best.warpgroups) << n;
    EXPECT_EQ(best.tasks == few_tasks, n <= 396) << n;
  }
  DeviceFacts older = h200();
  older.major = 8;
  const auto of_teams = resident_layouts(listed().front(), older);
  EXPECT_GE(best_layout(of_teams, 10'000, older).batch, 76);
  EXPECT_EQ(best_layout(of_teams, 10'000, older).team, 1);
  EXPECT_GE(best_layout(of_teams, 1, older).team, 4);
}

// Microseconds on an H200, docs/lab/gpu-spiking.md: what is predicted is near.
TEST(SpikeResident, CostsAreNearWhatWasMeasured) {
  struct Measured {
    Index n;
    double us;
  };
  DeviceFacts without = h200();  // wgmma
  without.minor = 9;
  const auto near = [](const DeviceFacts& device, std::initializer_list<Measured> measured) {
    const auto layouts = resident_layouts(listed().front(), device);
    for (const auto& [n, us] : measured) {
      const ResidentLayout& best = best_layout(layouts, n, device);
      EXPECT_NEAR(1e6 * resident_seconds(best, n, device) / us, 1, 0.1)
          << n << " images, teams of " << best.team << ", warpgroups " << best.warpgroups;
    }
  };
  near(without, {{1, 7.96}, {132, 8.82}, {1'000, 16.1}, {10'000, 72.0}, {60'000, 421}});
  near(h200(), {{1, 4.93},
                {132, 5.59},
                {264, 6.84},
                {396, 7.65},
                {700, 11.5},
                {1'000, 12.8},
                {2'700, 20.4},
                {10'000, 55.9},
                {60'000, 333}});
}

// All of them but one, whose linear layer of many inputs and few outputs is window's.
TEST(SpikeResident, NetworksAreCutSoThatItRunsThem) {
  int networks = 0, whole = 0;
  for (const OwnedChain& chain : listed()) {
    if (!chain.mean) continue;
    SCOPED_TRACE(to_text(chain));
    PlanOptions options;
    options.device = Device{DeviceKind::cuda, 0};
    options.use_tuning = false;
    const auto segments = cut(chain, machine_of(h200()), options);
    ASSERT_NE(segments.front().kernel, nullptr);
    EXPECT_EQ(segments.front().kernel,
              networks == 0 ? &spike_resident_warpgroups() : &spike_resident());
    ++networks;
    whole += segments.size() == 1;
  }
  EXPECT_EQ(whole, networks - 1);
}

// The plan keeps the tile that is predicted to be the fastest for its n, for runs of any other.
TEST(SpikeResident, TilesForComparisonAreNeverPredictedFaster) {
  const Machine machine = machine_of(h200());
  for (const OwnedChain& listed_chain : listed())
    for (const Index n : {1, 10, 100, 256, 1'000, 10'000}) {
      const OwnedChain chain = with_images(listed_chain, n);
      for (const Kernel* kernel : {&spike_resident(), &spike_resident_warpgroups()}) {
        if (!kernel->refusals(chain, machine).empty()) continue;
        const std::vector<Tile> tiles = kernel->tiles(chain, machine);
        const double of_any = kernel->cost(chain, tiles.front(), machine).seconds;
        for (const Tile& tile : tiles)
          EXPECT_LE(of_any, kernel->cost(chain, tile, machine).seconds)
              << to_text(chain) << ", tile " << tile.name;
      }
    }
}

}  // namespace
}  // namespace convoy::cuda::sm80
