// Ties `spike_resident` and `spike_resident_warpgroups` to the planner.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "cuda/error.hpp"
#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/sm80/spike_resident.hpp"
#include "cuda/sm80/spike_resident_nets.hpp"
#include "cuda/sm80/spike_resident_pack.hpp"

namespace convoy::cuda::sm80 {
namespace {

// The tiles that choose for each run by its n; the others are for comparison.
constexpr const char *any_team = "any team", *any_batch = "any batch";

// Those of the network's code by wgmma, or all others.
std::vector<ResidentLayout> layouts_of(const Chain& chain, const DeviceFacts& device,
                                       bool warpgroups) {
  std::vector<ResidentLayout> layouts = resident_layouts(chain, device);
  std::erase_if(layouts, [&](const auto& layout) { return layout.warpgroups != warpgroups; });
  return layouts;
}

DeviceMemory uploaded(int device, const void* from, std::size_t bytes) {
  DeviceMemory memory(device, std::max<std::size_t>(bytes, 16), "weights of spike_resident");
  if (bytes > 0) memory.upload(from, bytes);
  return memory;
}

struct ResidentWeights final : PackedWeights {
  ResidentWeights(const ResidentConstants& made, int device)
      : shared(uploaded(device, made.shared.data(), made.shared.size())),
        linear(uploaded(device, made.linear.data(), made.linear.size())),
        values(uploaded(device, made.values.data(), made.values.size() * 2)),
        has_values(!made.values.empty()),
        of(made.of) {}
  DeviceMemory shared, linear, values;
  bool has_values;
  std::array<ResidentScale, most_layers> of;
};

std::string name_of(const ResidentLayout& layout) {
  const char* const few = layout.tasks == few_tasks ? ", small tasks" : "";
  if (layout.warpgroups) return fmt::format("warpgroups{}", few);
  return fmt::format("teams of {}{}", layout.team, few);
}

class PreparedResident final : public Prepared {
 public:
  PreparedResident(const Chain& chain, const Tile& tile, const Machine& machine, bool warpgroups)
      : chain_(chain),
        device_(machine.device.index),
        facts_(facts_of(machine)),
        layouts_(layouts_of(chain, facts_, warpgroups)) {
    const auto asked = std::find_if(layouts_.begin(), layouts_.end(), [&](const auto& layout) {
      return name_of(layout) == tile.name;
    });
    if (warpgroups) of_teams_ = layouts_of(chain, facts_, false);
    if (asked != layouts_.end()) layouts_ = {*asked};
    layout_for(chain.front().n);
    const Stage& images = chain.front();
    image_bytes_ = images.h * images.w * images.c;
    const OnDevice on(device_);
    launch_ = std::make_unique<ResidentLaunch>(facts_.major >= 9, layouts_.back().warpgroups);
  }

  std::string packing() const override {
    // Layouts of one chain agree on all that is packed.
    return to_text(with_images(chain_, 1));
  }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    return std::make_shared<ResidentWeights>(pack_resident(chain_, layouts_.front(), all), device_);
  }
  void use(std::shared_ptr<const PackedWeights> weights) override {
    weights_ = std::static_pointer_cast<const ResidentWeights>(std::move(weights));
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    ResidentParams p;
    p.at = layout_for(args.n);
    std::copy(weights_->of.begin(), weights_->of.end(), p.of);
    p.constants = weights_->shared.data();
    p.linear = weights_->linear.data();
    if (weights_->has_values) p.values = static_cast<const std::uint16_t*>(weights_->values.data());
    p.n = args.n;
    const std::size_t last = chain_.stages.size() - 1;
    for (std::size_t i = 0; i < last; ++i)
      p.y[i] = i == 0 ? args.inner_y : args.later.size() >= i ? args.later[i - 1].inner_y : nullptr;
    p.y[last] = static_cast<float*>(args.y);
    p.labels = chain_.mean ? args.labels : nullptr;
    if (p.at.warpgroups && !for_warpgroups(p)) p.at = best_layout(of_teams_, args.n, facts_);
    const Index bytes = args.n * image_bytes_;
    if (bytes <= most_inline_bytes && p.at.tasks == few_tasks && args.x_on_host)
      std::memcpy(p.image, args.x, static_cast<std::size_t>(bytes));
    else
      p.x = static_cast<const std::uint8_t*>(args.x);
    const OnDevice on(device_);
    return launch_status(launch_->run(p, facts_.sms, stream_of(args)));
  }

 private:
  // Their code takes weights of two terms, where teams do not need half the products, and pixels as
  // they are. It is the weights that decide, so that all runs of a plan have the same arithmetic.
  static bool for_warpgroups(const ResidentParams& p) noexcept {
    const bool two_terms =
        std::any_of(p.of, p.of + p.at.size, [](const ResidentScale& of) { return of.terms > 1; });
    return two_terms && p.values == nullptr;
  }

  // That of the run before costs nothing, the choice a microsecond.
  const ResidentLayout& layout_for(Index n) const noexcept {
    const Index last = last_.load(std::memory_order_relaxed);
    if (last / most_layouts == n) return layouts_[static_cast<std::size_t>(last % most_layouts)];
    const ResidentLayout& best = best_layout(layouts_, n, facts_);
    last_.store(n * most_layouts + (&best - layouts_.data()), std::memory_order_relaxed);
    return best;
  }

  static constexpr Index most_layouts = 16;
  OwnedChain chain_;
  int device_;
  DeviceFacts facts_;
  std::vector<ResidentLayout> layouts_;
  std::vector<ResidentLayout> of_teams_;  // for what warpgroups don't take
  mutable std::atomic<Index> last_{-1};   // n * most_layouts + the layout's number
  Index image_bytes_ = 0;
  std::shared_ptr<const ResidentWeights> weights_;
  std::unique_ptr<ResidentLaunch> launch_;
};

class SpikeResident final : public Kernel {
 public:
  // Warpgroups add products in an order of their own: the arithmetic is another, and so is the
  // kernel. Chains of fewer stages than the known network are not their business.
  explicit SpikeResident(bool warpgroups)
      : Kernel({.name = warpgroups ? "spike_resident_warpgroups" : "spike_resident",
                .arithmetic = warpgroups ? "sums of two f16 terms a weight by wgmma"
                                         : "sums of two f16 terms a weight",
                .device = DeviceKind::cuda,
                .serves = served_by_resident,
                .chain = serves_every_chain,
                .exact = true,
                .folds = true,
                .any_n = true,
                .keeps_inner = true,
                .least_stages = warpgroups ? std::size_t{FashionNet::net().size} : 1}),
        warpgroups_(warpgroups) {}

 private:
  void refuse_chain(const Chain& chain, const Machine& machine, Reasons& why) const override {
    const DeviceFacts device = facts_of(machine);
    refuse_resident(chain, device, why);
    if (warpgroups_ && why.empty() && layouts_of(chain, device, true).empty())
      why.emplace_back(
          "the GPU's compute capability is not 9.0, or the network has another shape than the "
          "shipped one: spike_resident runs it");
  }

  std::vector<Tile> chain_tiles(const Chain& chain, const Machine& machine) const override {
    std::vector<Tile> tiles{{warpgroups_ ? any_batch : any_team}};
    for (const ResidentLayout& layout : layouts_of(chain, facts_of(machine), warpgroups_))
      tiles.push_back({name_of(layout)});
    return tiles;
  }

  Cost chain_cost(const Chain& chain, const Tile& tile, const Machine& machine) const override {
    const DeviceFacts device = facts_of(machine);
    const std::vector<ResidentLayout> layouts = layouts_of(chain, device, warpgroups_);
    const Index n = chain.front().n;
    const auto asked = std::find_if(layouts.begin(), layouts.end(), [&](const auto& layout) {
      return name_of(layout) == tile.name;
    });
    Cost cost;
    cost.seconds = resident_seconds(best_layout(layouts, n, device), n, device);
    // Those for comparison are never predicted to be faster: one of them would be kept for any n.
    if (asked != layouts.end())
      cost.seconds = std::max(cost.seconds, resident_seconds(*asked, n, device));
    for (const Stage& stage : chain.stages) {
      const Shapes shapes = shapes_of(stage);
      const auto steps = static_cast<double>(stage.hold ? 1 : chain.steps());
      cost.flops += 2 * steps * static_cast<double>(shapes.macs);
      cost.bytes += 4 * static_cast<double>(shapes.w_elements);
    }
    cost.bytes += static_cast<double>(shapes_of(chain.front()).x_elements) +
                  4 * static_cast<double>(shapes_of(chain.back()).y_elements);
    return cost;
  }

  std::unique_ptr<Prepared> chain_prepare(const Chain& chain, const Tile& tile,
                                          const Machine& machine) const override {
    return std::make_unique<PreparedResident>(chain, tile, machine, warpgroups_);
  }

  bool warpgroups_;
};

}  // namespace

const Kernel& spike_resident() {
  static const SpikeResident kernel(false);
  return kernel;
}
const Kernel& spike_resident_warpgroups() {
  static const SpikeResident kernel(true);
  return kernel;
}

}  // namespace convoy::cuda::sm80
