// Kernel `spike_resident` on a GPU: its codes for the known network, against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bench/fit/h200.hpp"
#include "cuda/families.hpp"
#include "cuda/memory.hpp"
#include "cuda/sm80/spike_resident.hpp"
#include "cuda/sm80/spike_resident_pack.hpp"
#include "gpu_case.hpp"
#include "spike_resident_chains.hpp"
#include "verify/draw_chain.hpp"

namespace convoy::cuda::sm80 {
namespace {

class GpuSpikeResident : public GpuTest {};

// The first listed chain, which is the known network, on a GPU, on as many CTAs as it has
// multiprocessors: `verify` wants the spikes of inner layers, which only the general code gives.
class KnownOnGpu {
 public:
  KnownOnGpu(Index n, bool one_term)
      : KnownOnGpu(drawn(with_images(listed().front(), n), one_term)) {}
  explicit KnownOnGpu(verify::ChainInputs inputs)
      : chain_(inputs.chain),
        inputs_(std::move(inputs)),
        layouts_(resident_layouts(chain_, h200())),
        launch_(false, layouts_.back().warpgroups),
        made_(pack_resident(inputs_.chain, layouts_.front(),
                            inputs_.parameters(spike_resident().facts()))),
        shared_(uploaded(made_.shared.data(), made_.shared.size())),
        linear_(uploaded(made_.linear.data(), made_.linear.size())),
        x_(uploaded(inputs_.x.data<std::uint8_t>(),
                    static_cast<std::size_t>(inputs_.x.elements()))) {}

  const std::vector<ResidentLayout>& layouts() const { return layouts_; }

  /// Logits of images `first` to `first + n`; `spikes`: those of the layers before are wanted too,
  /// and come behind the logits.
  std::vector<float> logits(const ResidentLayout& layout, bool known, Index first, Index n,
                            bool spikes = false) const {
    ResidentParams p;
    p.at = layout;
    if (!known) p.at.compiled = 0;
    std::copy(made_.of.begin(), made_.of.end(), p.of);
    p.constants = shared_.data();
    p.linear = linear_.data();
    p.n = n;
    p.x = static_cast<const std::uint8_t*>(x_.data()) + first * 28 * 28;
    std::vector<float> got(static_cast<std::size_t>(n * chain_.stages.back().k),
                           std::numeric_limits<float>::quiet_NaN());
    const DeviceMemory y = uploaded(got.data(), got.size() * sizeof(float));
    p.y[p.at.size - 1] = static_cast<float*>(y.data());
    std::vector<DeviceMemory> inner;
    for (int i = 0; spikes && i + 1 < p.at.size; ++i) {
      const ResidentLayer& l = p.at.layers[i];
      const std::vector<float> nan(
          static_cast<std::size_t>(p.at.steps * n * l.out_h * l.out_w * l.k),
          std::numeric_limits<float>::quiet_NaN());
      inner.push_back(uploaded(nan.data(), nan.size() * sizeof(float)));
      p.y[i] = static_cast<float*>(inner.back().data());
    }
    EXPECT_EQ(launch_.run(p, h200().sms, nullptr), "");
    append(y, 0, got);
    for (const DeviceMemory& memory : inner) append(memory, got.size(), got);
    return got;
  }

 private:
  static void append(const DeviceMemory& from, std::size_t at, std::vector<float>& to) {
    to.resize(at + from.bytes() / sizeof(float));
    EXPECT_EQ(cudaMemcpy(to.data() + at, from.data(), from.bytes(), cudaMemcpyDeviceToHost),
              cudaSuccess);
  }
  static verify::ChainInputs drawn(const OwnedChain& chain, bool one_term) {
    verify::ChainInputs inputs = verify::draw_inputs(chain, verify::Data::normal, 6);
    if (one_term) round_weights(inputs);
    return inputs;
  }
  static DeviceMemory uploaded(const void* from, std::size_t bytes) {
    DeviceMemory memory(0, bytes, "operands");
    memory.upload(from, bytes);
    return memory;
  }

  OwnedChain chain_;
  verify::ChainInputs inputs_;
  std::vector<ResidentLayout> layouts_;
  ResidentLaunch launch_;
  ResidentConstants made_;
  DeviceMemory shared_, linear_, x_;
};

TEST_F(GpuSpikeResident, KnownNetworkGivesTheSameBits) {
  const Index n = 700;
  for (const bool one_term : {false, true}) {
    const KnownOnGpu network(n, one_term);
    const std::vector<float> want = network.logits(network.layouts().front(), false, 0, n);
    for (const ResidentLayout& layout : network.layouts())
      for (const bool known : {false, true}) {
        if (layout.warpgroups) continue;
        SCOPED_TRACE(testing::Message() << "teams of " << layout.team << ", known " << known
                                        << ", one term " << one_term);
        EXPECT_EQ(want, network.logits(layout, known, 0, n));
      }
  }
}

// With the spikes of all layers and without them, the logits are the same.
TEST_F(GpuSpikeResident, SpikesThatAreWantedChangeNoBit) {
  const Index n = 700;
  const KnownOnGpu network(n, false);
  for (const ResidentLayout& layout : network.layouts()) {
    SCOPED_TRACE(testing::Message() << "teams of " << layout.team << ", warpgroups "
                                    << layout.warpgroups << ", rounds of " << layout.batch);
    const std::vector<float> alone = network.logits(layout, true, 0, n);
    const std::vector<float> all = network.logits(layout, true, 0, n, true);
    ASSERT_GT(all.size(), alone.size());
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin()));
  }
}

// Where the sums are exact no order of them changes a spike of any layer.
TEST_F(GpuSpikeResident, AllCodesAgreeAtTheThreshold) {
  const Index n = 700;
  for (const int seed : {1, 2, 3}) {
    const KnownOnGpu network(verify::draw_ties(with_images(listed().front(), n), seed));
    const std::vector<float> want = network.logits(network.layouts().front(), false, 0, n, true);
    for (const ResidentLayout& layout : network.layouts()) {
      SCOPED_TRACE(testing::Message() << "teams of " << layout.team << ", warpgroups "
                                      << layout.warpgroups << ", seed " << seed);
      EXPECT_EQ(want, network.logits(layout, true, 0, n, true));
    }
  }
}

// Warpgroups add the products in another order: a sum that lies at the threshold to within its
// rounding may fire in one code only. Among themselves they give the same bits, wherever an image
// lies in however large a batch.
TEST_F(GpuSpikeResident, WarpgroupsDifferAtTheThresholdOnly) {
  const Index n = 17'000;  // two rounds
  const KnownOnGpu network(n, false);
  const ResidentLayout& layout = network.layouts().back();
  if (!layout.warpgroups) GTEST_SKIP() << "skipped: needs compute capability 9.0";
  const std::vector<float> want = network.logits(network.layouts().front(), true, 0, n);
  const std::vector<float> got = network.logits(layout, true, 0, n);
  const auto k = static_cast<Index>(got.size()) / n;
  Index others = 0;
  for (Index i = 0; i < n; ++i)
    others += !std::equal(got.begin() + i * k, got.begin() + (i + 1) * k, want.begin() + i * k);
  EXPECT_LE(others, n / 1000) << "images of " << n;
  for (const ResidentLayout& other : network.layouts())
    for (const auto& [first, images] :
         std::initializer_list<std::pair<Index, Index>>{{0, 1}, {5, 7}, {3, 133}, {1'000, 1'001}}) {
      if (!other.warpgroups) continue;
      const std::vector<float> part = network.logits(other, true, first, images);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), got.begin() + first * k))
          << images << " images from " << first << " on, rounds of " << other.batch;
    }
}

}  // namespace
}  // namespace convoy::cuda::sm80
