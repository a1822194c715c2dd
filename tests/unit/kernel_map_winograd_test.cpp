// What `explain --map` says of Winograd's products, on CPUs and on GPUs.
#include <gtest/gtest.h>

#include <set>

#include "core/machine.hpp"
#include "cuda/known_gpus.hpp"
#include "inspect/kernel_map/kernel_map.hpp"
#include "kernel_map_points.hpp"

namespace convoy::inspect {
namespace {

// A Winograd tile's products make each output of its weights and inputs, and of no others: the sum
// over xi of the three factors is 1 where the definition multiplies, 0 elsewhere.
void check_winograd(const KernelMap& map, std::size_t products, verify::Random& random) {
  const Stage& stage = map.stage();
  const std::string repro = map.kernel() + " " + map.tile() + " " + to_text(stage);
  const Point at = draw_point(stage, random);
  const auto place = map.winograd(at.output, &at.tap);
  ASSERT_TRUE(place.has_value());
  ASSERT_EQ(place->products.size(), products) << repro;
  EXPECT_EQ(place->row + place->i, at.output.p) << repro;
  EXPECT_EQ(place->column + place->j, at.output.q) << repro;
  double one = 0;
  std::set<Index> v, m;
  for (const WinogradProduct& product : place->products) {
    one += product.of_output * product.of_input * product.of_weight;
    v.insert(product.v), m.insert(product.m);
  }
  EXPECT_NEAR(one, 1, 1e-5) << repro;
  EXPECT_EQ(v.size(), place->products.size());
  EXPECT_EQ(m.size(), place->products.size());
  // Another weight with this input adds nothing.
  TapIndex other = at.tap;
  other.r = (other.r + 1) % 3;
  const auto wrong = map.winograd(at.output, &other);
  double nothing = 0;
  for (std::size_t xi = 0; xi < place->products.size(); ++xi)
    nothing += place->products[xi].of_output * place->products[xi].of_input *
               wrong->products[xi].of_weight;
  EXPECT_NEAR(nothing, 0, 1e-5) << repro;
}

Stage draw_winograd(verify::Random& random) {
  Stage stage{.n = random.between(1, 4),
              .h = random.between(8, 20),
              .w = random.between(8, 20),
              .c = random.between(96, 140),
              .k = random.between(1, 80),
              .r = 3,
              .s = 3};
  stage.pad = Padding(random.between(0, 2), random.between(0, 2));
  return stage;
}

TEST(KernelMap, WinogradsProductsMakeTheOutput) {
  verify::Random random(5);
  const Machine machine = cpu_machine(2);
  for (int drawn = 0; drawn < 60; ++drawn) {
    Stage stage = draw_winograd(random);
    const bool f4 = random.chance(0.5);
    if (!f4 && random.chance(0.5)) stage.stride = Extent(2);
    const std::string kernel = f4 && machine.isa != "scalar" ? "winograd4" : "winograd2";
    check_winograd(*map_winograd(stage, machine, kernel, {}),
                   stage.stride == Extent(2) ? 25
                   : kernel == "winograd4"   ? 36
                                             : 16,
                   random);
  }
}

// On a GPU, too; there no two tiles and products share a place.
TEST(KernelMap, WinogradsProductsOnAGpu) {
  verify::Random random(7);
  const Machine machine = cuda::machine_of(cuda::h200());
  for (int drawn = 0; drawn < 60; ++drawn) {
    Stage stage = draw_winograd(random);
    stage.c = stage.c / 4 * 4;
    if (random.chance(0.5)) stage.pool = max_pool(2);
    if (random.chance(0.2)) stage.n = 300, stage.k = 900;  // chunks of images
    const auto map = map_winograd_gpu(stage.normalised(), machine, {});
    check_winograd(*map, 36, random);
  }
  const Stage stage = parse_stage("n2h9w6c96k2r3pad1").normalised();
  const auto map = map_winograd_gpu(stage, machine, {});
  std::set<Index> places;
  for (Index n = 0; n < 2; ++n)
    for (Index p = 0; p < 9; p += 4)
      for (Index q = 0; q < 6; q += 4) {
        const auto place = map->winograd({n, p, q, 1}, nullptr);
        ASSERT_TRUE(place.has_value());
        for (const WinogradProduct& product : place->products)
          EXPECT_TRUE(places.insert(product.m).second);
      }
  EXPECT_EQ(places.size(), 2U * 3 * 2 * 36);
}

}  // namespace
}  // namespace convoy::inspect
