// Kernel `spike_resident`: its packing and the code of its lanes, run on an emulated CTA and judged
// by the oracle.
#include "cuda/sm80/spike_resident.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/fit/h200.hpp"
#include "cuda/families.hpp"
#include "cuda/sm80/spike_resident_nets.hpp"
#include "cuda/sm80/spike_resident_pack.hpp"
#include "cuda/sm80/spike_resident_run.cuh"
#include "cuda/sm80/spike_resident_warpgroup.hpp"
#include "cuda/sm90/spike_resident_few.cuh"
#include "emulated_cta.hpp"
#include "gpu_case.hpp"
#include "math/half.hpp"
#include "spike_resident_chains.hpp"
#include "verify/compare.hpp"
#include "verify/draw_chain.hpp"
#include "verify/error_bound.hpp"
#include "verify/exact_sums.hpp"

namespace convoy::cuda::sm80 {
namespace {

using reference::Oracle;
using reference::Sum;

struct Outputs {
  std::vector<std::vector<float>> y;  // of each stage
  std::vector<std::int32_t> labels;
};

enum class Code { any, known, known_one_term };

// Runs the kernel, or its code for a known network, on so many CTAs; images lie `shift` bytes
// behind an even address.
Outputs emulate(const verify::ChainInputs& inputs, const ResidentLayout& layout, int ctas,
                Code code = Code::any, std::size_t shift = 0) {
  const Chain chain = inputs.chain;
  const ResidentConstants constants =
      pack_resident(chain, layout, inputs.parameters(spike_resident().facts()));
  ResidentParams p;
  p.at = layout;
  std::copy(constants.of.begin(), constants.of.end(), p.of);
  p.constants = constants.shared.data();
  p.linear = constants.linear.data();
  p.values = constants.values.empty() ? nullptr : constants.values.data();
  p.n = chain.front().n;
  std::vector<std::uint8_t> x(shift + static_cast<std::size_t>(inputs.x.elements()));
  std::copy_n(inputs.x.data<std::uint8_t>(), inputs.x.elements(), x.data() + shift);
  p.x = x.data() + shift;
  // Few images come with the launch.
  if (layout.tasks == few_tasks && inputs.x.elements() <= most_inline_bytes)
    std::copy_n(std::exchange(p.x, nullptr), inputs.x.elements(), p.image);
  Outputs outputs;
  outputs.y.resize(chain.size());
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const bool mean = chain.mean && i + 1 == chain.size();
    const Shapes shapes = shapes_of(chain[i]);
    outputs.y[i].assign(static_cast<std::size_t>((mean ? 1 : chain.steps()) * p.n * shapes.out_h *
                                                 shapes.out_w * chain[i].k),
                        std::numeric_limits<float>::quiet_NaN());
    p.y[i] = outputs.y[i].data();
  }
  if (chain.mean) outputs.labels.assign(static_cast<std::size_t>(p.n), -1);
  p.labels = chain.mean ? outputs.labels.data() : nullptr;
  EmulatedCta cta((layout.warpgroups ? warps_of_warpgroups : resident_warps) * 32,
                  static_cast<std::size_t>(layout.shared_bytes));
  const bool few = layout.warpgroups && layout.tasks == few_tasks;  // a round a CTA
  if (few) ctas = static_cast<int>((p.n - 1) / layout.batch + 1);
  for (int i = 0; i < ctas; ++i)
    cta.run([&](const EmulatedLane& lane) {
      if (few)
        sm90::few_images_cta<WithInner<KnownNet<FashionNet, few_tasks>>>(lane, p, i, ctas);
      else if (layout.warpgroups)
        sm90::warpgroups_cta<WithInner<KnownNet<FashionNet, warpgroup_tasks>>>(lane, p, i, ctas);
      else if (layout.tasks == few_tasks)
        code == Code::any ? resident_cta<AnyNet<few_tasks>>(lane, p, i, ctas)
                          : resident_cta<KnownNet<FashionNet, few_tasks>>(lane, p, i, ctas);
      else if (code == Code::known_one_term)
        resident_cta<KnownNet<FashionNet, known_many_tasks, 1>>(lane, p, i, ctas);
      else
        code == Code::any ? resident_cta<AnyNet<many_tasks>>(lane, p, i, ctas)
                          : resident_cta<KnownNet<FashionNet, known_many_tasks>>(lane, p, i, ctas);
    });
  return outputs;
}

// Each stage on what the kernel itself gave before; `exact`: to the last bit, wherever fp32 rounds
// none of the sums. How many stages that were.
int judge(const verify::ChainInputs& inputs, const Outputs& got, bool exact) {
  Threads threads(1);
  const Chain chain = inputs.chain;
  const std::vector<Stage> stages = stages_alone(chain);
  const Index steps = chain.steps(), n = chain.front().n;
  Tensor x = inputs.plain_x();
  verify::SpikeCount count;
  int judged = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "stage " << i + 1);
    verify::Inputs in;
    in.stage = stages[i];
    in.stage.dtype = DType::f32;
    in.stage.out.reset();
    in.x = std::move(x);
    in.weights = inputs.weights[i].clone();
    if (in.stage.bias) in.bias = inputs.bias[i].clone();
    if (in.stage.act.is_neuron()) {
      if (exact && verify::sums_are_exact(in, i == 0 ? 512 : 1, threads)) {
        ++judged;
        const auto y = Oracle(in.stage, in.weights, in.operands(), Sum::exact).all(threads).y;
        EXPECT_EQ(verify::compare_exact("y", got.y[i], y, y_shape(in.stage)), "");
      }
      verify::Result result;
      result.y = got.y[i];
      EXPECT_EQ(verify::compare_spikes(in, result, count), "");
    } else {
      const auto by_oracle = [&](Sum sum) {
        const auto y = Oracle(in.stage, in.weights, in.operands(), sum).all(threads).y;
        std::vector<double> mean(y.size() / static_cast<std::size_t>(steps));
        for (std::size_t j = 0; j < y.size(); ++j)
          mean[j % mean.size()] += y[j] / static_cast<double>(steps);
        return mean;
      };
      const auto want = by_oracle(Sum::real);
      EXPECT_EQ(verify::compare_close(
                    "y", got.y[i], want,
                    verify::error_bounds(in.stage, want, by_oracle(Sum::magnitude)), {}),
                "");
    }
    if (i + 1 == stages.size()) break;
    Stage next = stages[i + 1];
    next.dtype = DType::f32;
    x = Tensor(DType::f32, x_shape(next));
    EXPECT_EQ(static_cast<std::size_t>(x.elements()), got.y[i].size());
    if (testing::Test::HasFailure()) return judged;
    std::copy(got.y[i].begin(), got.y[i].end(), x.data<float>());
  }
  const Index k = chain.back().k;
  for (std::size_t i = 0; i < got.labels.size(); ++i) {
    const auto values = got.y.back().begin() + static_cast<Index>(i) * k;
    EXPECT_EQ(got.labels[i], std::max_element(values, values + k) - values);
  }
  EXPECT_EQ(static_cast<Index>(got.labels.size()), chain.mean ? n : 0);
  return judged;
}

void check_chain(const OwnedChain& chain, bool thorough) {
  SCOPED_TRACE(to_text(chain));
  ASSERT_EQ(resident_refusals(chain), Reasons());
  const std::vector<ResidentLayout> layouts = resident_layouts(chain, h200());
  for (const verify::Data data : {verify::Data::integers, verify::Data::normal}) {
    const verify::ChainInputs inputs = verify::draw_inputs(chain, data, 1);
    const Outputs got = emulate(inputs, layouts.front(), 2);
    judge(inputs, got, data == verify::Data::integers);
    if (testing::Test::HasFailure()) return;
    for (std::size_t i = 1; thorough && i < layouts.size() && !layouts[i].warpgroups; i += 3) {
      SCOPED_TRACE(testing::Message() << "teams of " << layouts[i].team);
      const Outputs other = emulate(inputs, layouts[i], 1);
      EXPECT_EQ(got.y, other.y);
      EXPECT_EQ(got.labels, other.labels);
    }
    // Rounds of few images: shared memory is used again.
    if (thorough && chain.stages.front().n > 8) {
      ResidentLayout small = layouts.front();
      small.batch = 8;
      EXPECT_EQ(got.y, emulate(inputs, small, 1).y);
    }
  }
}

TEST(SpikeResident, RunsListedChainsAsTheOracleDoes) {
  for (const OwnedChain& chain : listed()) {
    check_chain(chain, true);
    if (HasFailure()) return;
  }
}

TEST(SpikeResident, RunsDrawnChainsAsTheOracleDoes) {
  verify::Random random(3);
  int found = 0;
  while (found < 12) {
    OwnedChain chain = verify::draw_chain(random, DeviceKind::cuda);
    chain = with_images(chain, std::min<Index>(chain.stages.front().n, 9));
    if (!resident_refusals(chain).empty()) continue;
    check_chain(chain, false);
    if (HasFailure()) return;
    ++found;
  }
}

// Black and white images, weights that are multiples of a power of two: what fires is no matter of
// rounding. Mean and deviation of the pixels, padding, channels of several ranges, weights of two
// terms are drawn.
TEST(SpikeResident, FiresAsTheOracleWhereMembranesAreAtTheThreshold) {
  std::vector<OwnedChain> chains = listed();
  chains.push_back(
      parse_chain("constants > u8:n5h10w19c3k16r3pad1out(f32)+bias+if(1)+t5+hold > "
                  "n5h10w19c16k24r2pad1+bias+if(2)+soft+t5",
                  true));
  verify::Random random(8);
  while (chains.size() < 24) {
    OwnedChain chain = verify::draw_chain(random, DeviceKind::cuda);
    if (resident_refusals(chain).empty()) chains.push_back(chain);
  }
  int judged = 0, stages = 0;
  for (OwnedChain& chain : chains) {
    chain = with_images(chain, std::min<Index>(chain.stages.front().n, 5));
    for (const int seed : {1, 2}) {
      SCOPED_TRACE(testing::Message() << to_text(chain) << ", seed " << seed);
      const verify::ChainInputs inputs = verify::draw_ties(chain, seed);
      judged += judge(inputs, emulate(inputs, resident_layouts(chain, h200()).front(), 1), true);
      stages += static_cast<int>(chain.stages.size());
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(judged, stages / 2);
}

// Where one pixel alone decides, x' of any grey is what the sum is: u/255 rounded once.
TEST(SpikeResident, OneGreyPixelIsItsValue) {
  const OwnedChain chain = parse_chain("constants > u8:n1h1c1k1r1out(f32)+if(0.25)+t2+hold", true);
  const ResidentLayout layout = resident_layouts(chain, h200()).front();
  verify::ChainInputs inputs = verify::draw_ties(chain, 1);
  for (int u = 0; u < 256; ++u) inputs.values.data<float>()[u] = static_cast<float>(u) / 255.0F;
  for (const float weight : {1.0F, 0.75F}) {
    inputs.weights.front().data<float>()[0] = weight;
    const ResidentConstants made =
        pack_resident(chain, layout, inputs.parameters(spike_resident().facts()));
    std::uint16_t packed = 0;  // of a linear layer of one value: the first one
    std::memcpy(&packed, made.linear.data(), sizeof packed);
    for (int grey = 0; grey < 256; ++grey)
      EXPECT_EQ(first_input(made.of[0], math::half_to_float(packed) * static_cast<float>(grey), 0),
                static_cast<float>(grey) * weight / 255.0F)
          << grey << " times " << weight;
  }
}

// Facts of known networks are what the plan makes of their chains, and the code that is compiled
// for them gives the bits of the general one.
TEST(SpikeResident, KnownNetworkGivesTheSameBits) {
  const OwnedChain chain = with_images(listed().front(), 19);
  const std::vector<ResidentLayout> layouts = resident_layouts(chain, h200());
  for (const bool one_term : {false, true}) {
    verify::ChainInputs inputs = verify::draw_inputs(chain, verify::Data::normal, 5);
    if (one_term) round_weights(inputs);
    const Outputs want = emulate(inputs, layouts.front(), 1);
    for (const ResidentLayout& layout : layouts)
      for (const Code code : {Code::known, Code::known_one_term}) {
        if (code == Code::known_one_term &&
            (!one_term || layout.tasks == few_tasks || layout.warpgroups))
          continue;
        SCOPED_TRACE(testing::Message() << "teams of " << layout.team << ", " << one_term);
        ASSERT_EQ(layout.compiled, 1);
        const Outputs got = emulate(inputs, layout, 2, code, one_term ? 1 : 0);
        EXPECT_EQ(want.y.back(), got.y.back());
        EXPECT_EQ(want.labels, got.labels);
      }
  }
}

// Warpgroups give the spikes of all layers too, and where the sums are exact those of teams.
TEST(SpikeResident, WarpgroupsGiveWhatLiesBetweenTheLayers) {
  const OwnedChain chain = with_images(listed().front(), 8);
  int kinds = 0;
  for (const ResidentLayout& layout : resident_layouts(chain, h200())) {
    if (!layout.warpgroups) continue;
    SCOPED_TRACE(testing::Message() << "rounds of " << layout.batch);
    ++kinds;
    for (const int seed : {1, 2, 3}) {
      const verify::ChainInputs ties = verify::draw_ties(chain, seed);
      const Outputs got = emulate(ties, layout, 2);
      judge(ties, got, true);
      const Outputs teams = emulate(ties, resident_layouts(chain, h200()).front(), 1);
      EXPECT_EQ(got.y, teams.y);
      EXPECT_EQ(got.labels, teams.labels);
      if (HasFailure()) return;
    }
    const verify::ChainInputs normal = verify::draw_inputs(chain, verify::Data::normal, 2);
    judge(normal, emulate(normal, layout, 2), false);
  }
  EXPECT_EQ(kinds, 2);
}

// Two arithmetics are two kernels; the tiles of each share its bits.
TEST(SpikeResident, WarpgroupsAreAKernelOfTheirOwn) {
  const OwnedChain chain = listed().front();
  const Machine machine = machine_of(h200());
  EXPECT_NE(spike_resident().arithmetic(), spike_resident_warpgroups().arithmetic());
  for (const Kernel* kernel : {&spike_resident(), &spike_resident_warpgroups()}) {
    EXPECT_EQ(kernel->refusals(chain, machine), std::vector<std::string>{});
    for (const Tile& tile : kernel->tiles(chain, machine))
      EXPECT_EQ(tile.name.find("warpgroups") != std::string::npos,
                kernel == &spike_resident_warpgroups() && tile.name != "any batch")
          << tile.name;
  }
  // Of every batch they are predicted to be the faster ones.
  for (const Index n : {1, 2, 7, 64, 132, 133, 396, 397, 1'000, 10'000, 100'000}) {
    const OwnedChain at = with_images(chain, n);
    const auto seconds = [&](const Kernel& kernel) {
      return kernel.cost(at, kernel.tiles(at, machine).front(), machine).seconds;
    };
    EXPECT_LT(seconds(spike_resident_warpgroups()), seconds(spike_resident())) << n;
  }
  // Other networks, and other GPUs, are spike_resident's.
  DeviceFacts older = h200();
  older.minor = 9;
  EXPECT_NE(spike_resident_warpgroups().refusals(chain, machine_of(older)),
            std::vector<std::string>{});
  EXPECT_NE(spike_resident_warpgroups().refusals(listed()[1], machine), std::vector<std::string>{});
}

// f16 numbers have no lo, which halves the work; others have.
TEST(SpikeResident, WeightsThatAreF16NumbersTakeOneTerm) {
  const OwnedChain chain = listed().front();
  const ResidentLayout layout = resident_layouts(chain, h200()).front();
  verify::ChainInputs inputs = verify::draw_inputs(chain, verify::Data::normal, 7);
  for (const int terms : {2, 1}) {
    if (terms == 1) round_weights(inputs);
    const auto made = pack_resident(chain, layout, inputs.parameters(spike_resident().facts()));
    for (std::size_t i = 0; i < chain.stages.size(); ++i) EXPECT_EQ(made.of[i].terms, terms) << i;
  }
}

}  // namespace
}  // namespace convoy::cuda::sm80
