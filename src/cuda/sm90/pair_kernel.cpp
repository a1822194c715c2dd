// Kernel `pair`: two stages in one launch, the tensor between them never in memory. Ties the family
// to the planner.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "cuda/error.hpp"
#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/sm90/pair.hpp"

namespace convoy::cuda::sm90 {
namespace {

struct PairWeights final : PackedWeights {
  std::shared_ptr<const DeviceWeights> first, second;
};

class PreparedPair final : public Prepared {
 public:
  PreparedPair(const Chain& chain, const HaloTile& tile, const Machine& machine)
      : first_(chain[0]), second_(chain[1]), device_(machine.device.index) {
    const OnDevice on(device_);
    launch_.emplace(first_, second_, tile, pair_layout(first_, second_, tile, facts_of(machine)));
  }

  std::string packing() const override {
    return halo_packing(first_) + ", " + halo_packing(second_);
  }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    auto weights = std::make_shared<PairWeights>();
    weights->first = pack_rounded(first_, halo_weights(first_, all[0].w), device_);
    weights->second = pack_rounded(second_, halo_weights(second_, all[1].w), device_);
    return weights;
  }
  void use(std::shared_ptr<const PackedWeights> weights) override {
    weights_ = std::static_pointer_cast<const PairWeights>(std::move(weights));
    const OnDevice on(device_);
    launch_->use(weights_->first->memory.data(), weights_->second->memory.data());
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    if (args.inner_y)
      return {StatusCode::invalid_operand,
              "pair does not keep the values between its stages. Run the stages separately."};
    Status status = check_16_bytes("pair", "x", args.x, first_.c, first_.dtype);
    if (status.ok()) status = check_16_bytes("pair", "y", args.y, second_.k, second_.dtype);
    if (status.ok()) status = check_dense("x", args.x_stride.w, first_.c);
    if (status.ok()) status = check_dense("y", args.y_stride.w, second_.k);
    if (!status.ok()) return status;
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    return launch_status(launch_->run({.n = args.n,
                                       .x = args.x,
                                       .bias = args.bias,
                                       .bias2 = args.later.front().bias,
                                       .y = args.y},
                                      stream_of(args)));
  }

 private:
  static Status check_dense(std::string_view operand, Index pixel_stride, Index channels) {
    if (pixel_stride == channels) return {};
    return {
        StatusCode::invalid_operand,
        fmt::format(
            "{}: its pixels are {} elements apart, expected {} for kernel pair: a dense tensor. "
            "Run the stages one by one.",
            operand, pixel_stride, channels)};
  }

  Stage first_, second_;
  int device_;
  std::shared_ptr<const PairWeights> weights_;
  std::optional<PairLaunch> launch_;
};

KernelFacts pair_facts() {
  KernelFacts facts = halo().facts().called("pair", served_by_pair);
  facts.chain = ServesChain{.constants = true, .binary = true, .x_steps = false, .mean = false};
  facts.least_stages = 2;
  return facts;
}

class Pair final : public Kernel {
 public:
  Pair() : Kernel(pair_facts()) {}

 private:
  void refuse_chain(const Chain& chain, const Machine& machine, Reasons& why) const override {
    if (chain.size() != 2) {
      why.emplace_back("runs two stages, not more");
      return;
    }
    const Shapes between = shapes_of(chain[0]);
    if (chain[1].h != between.out_h || chain[1].w != between.out_w) {
      why.emplace_back("a flatten is between the stages");
      return;
    }
    const DeviceFacts facts = facts_of(machine);
    refuse_pair(chain[0], chain[1], facts, why);
    if (why.empty() && pair_tiles(chain[0], chain[1], facts).empty())
      why.emplace_back("no tile of both stages fits into shared memory");
  }

  std::vector<Tile> chain_tiles(const Chain& chain, const Machine& machine) const override {
    std::vector<Tile> tiles;
    for (const HaloTile& tile : pair_tiles(chain[0], chain[1], facts_of(machine)))
      tiles.push_back({tile.name()});
    return tiles;
  }

  Cost chain_cost(const Chain& chain, const Tile& tile, const Machine& machine) const override {
    const HaloTile ours = tile_of(chain, tile, machine);
    const DeviceFacts device = facts_of(machine);
    const double seconds =
        pair_seconds(chain[0], ours, pair_layout(chain[0], chain[1], ours, device), device);
    Cost cost = cost_of(chain[0], seconds, 0);
    const Cost second = cost_of(chain[1], 0, 0);
    // What lies between is neither written nor read.
    const double between = 2.0 * static_cast<double>(shapes_of(chain[0]).y_elements) *
                           static_cast<double>(size_of(chain[1].dtype));
    cost.flops += second.flops;
    cost.bytes += second.bytes - between;
    return cost;
  }

  std::unique_ptr<Prepared> chain_prepare(const Chain& chain, const Tile& tile,
                                          const Machine& machine) const override {
    return std::make_unique<PreparedPair>(chain, tile_of(chain, tile, machine), machine);
  }

  // A tile's name says all of it.
  static HaloTile tile_of(const Chain& chain, const Tile& tile, const Machine& machine) {
    const std::vector<HaloTile> tiles = pair_tiles(chain[0], chain[1], facts_of(machine));
    const auto found = std::find_if(tiles.begin(), tiles.end(),
                                    [&](const HaloTile& one) { return one.name() == tile.name; });
    if (found == tiles.end()) throw no_such_tile("pair", tile, chain[0]);
    return *found;
  }
};

}  // namespace

const Kernel& pair() {
  static const Pair kernel;
  return kernel;
}

}  // namespace convoy::cuda::sm90
