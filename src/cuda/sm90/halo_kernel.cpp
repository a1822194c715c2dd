// Kernel `halo` as the planner sees it: tiles by name, weights on the device, checked operands.
#include <algorithm>

#include "cuda/families.hpp"
#include "cuda/family.hpp"
#include "cuda/sm90/halo.hpp"
#include "cuda/sm90/halo_neuron.hpp"
#include "cuda/sm90/halo_trace.hpp"
#include "cuda/sm90/prepared.hpp"

namespace convoy::cuda::sm90 {
namespace {

// A HaloTile in the planner's Tile: the box, and the choices as bits.
Tile tile_of(const HaloTile& tile) {
  const int choices = static_cast<int>(tile.inner) | (tile.resident ? 4 : 0) |
                      static_cast<int>(tile.schedule) << 3 | (tile.half ? 32 : 0) | tile.deep << 8 |
                      tile.time_steps << 12;
  return {tile.name(), tile.bw, tile.bh, tile.bn, choices};
}
HaloTile halo_tile(const Tile& tile) {
  return {.inner = static_cast<Inner>(tile.d & 3),
          .bw = tile.a,
          .bh = tile.b,
          .bn = tile.c,
          .schedule = static_cast<Schedule>(tile.d >> 3 & 3),
          .resident = (tile.d & 4) != 0,
          .half = (tile.d & 32) != 0,
          .deep = tile.d >> 8 & 15,
          .time_steps = tile.d >> 12};
}

template <class Launch>
class PreparedHalo final : public PreparedLaunch<Launch> {
  using Base = PreparedLaunch<Launch>;

 public:
  PreparedHalo(const Stage& stage, const HaloTile& tile, const Machine& machine)
      : Base(stage, machine, tile, halo_layout(stage, tile, facts_of(machine))),
        tile_(tile),
        facts_(facts_of(machine)) {}

  std::string packing() const override { return halo_packing(Base::stage_); }
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    return halo_weights(Base::stage_, w);
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    const Stage& stage = Base::stage_;
    Status status = check_16_bytes("halo", "x", args.x, args.x_stride.w, stage.dtype);
    if (status.ok())
      status = check_16_bytes("halo", "y", args.y, args.y_stride.w, stage.output_dtype(true));
    if (!status.ok()) return status;
    return Base::enqueue(typename Launch::Run(args), args);
  }

  std::string why_no_trace() const override {
    return why_no_halo_trace(Base::stage_, tile_, facts_);
  }
  RunTrace trace(std::span<const RunArgs, 2> runs,
                 const std::function<void()>& warm_up) const override {
    if constexpr (std::is_same_v<Launch, HaloLaunch>) {
      const std::array two{NhwcRun(runs[0]), NhwcRun(runs[1])};
      return trace_halo(Base::stage_, tile_, halo_layout(Base::stage_, tile_, facts_),
                        Base::launch(), two, warm_up, facts_, stream_of(runs[1]));
    } else {
      return Prepared::trace(runs, warm_up);
    }
  }

 private:
  const HaloTile tile_;
  const DeviceFacts facts_;
};

class Halo final : public StageKernel {
 public:
  explicit Halo(const Serves& serves)
      : StageKernel({.name = "halo",
                     .arithmetic = "64 channels, tap, 16 channels",
                     .device = DeviceKind::cuda,
                     .serves = serves,
                     .exact = true,
                     .compute_capability = 90}) {}

  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override {
    const DeviceFacts facts = facts_of(machine);
    refuse_halo(stage, facts, why);
    if (why.empty() && !halo_serves(stage, facts))
      why.emplace_back("no tile of the family serves this filter, stride and pool");
  }

  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    std::vector<Tile> all;
    for (const HaloTile& tile : halo_tiles(stage, facts_of(machine))) all.push_back(tile_of(tile));
    return all;
  }

  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    const HaloTile ours = halo_tile(tile);
    const DeviceFacts device = facts_of(machine);
    const HaloLayout layout = halo_layout(stage, ours, device);
    const double done = static_cast<double>(layout.tiles()) * ours.cta_channels() *
                        ours.cta_columns() * ours.cta_rows() * ours.bn * layout.chunks *
                        row_channels * static_cast<double>(stage.r * stage.s);
    return cost_of(stage, halo_seconds(stage, ours, layout, device),
                   std::max(0.0, 1 - static_cast<double>(layout.shapes.macs) / done));
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    if (stage.act.is_neuron())
      return std::make_unique<PreparedHalo<HaloNeuronLaunch>>(stage, halo_tile(tile), machine);
    return std::make_unique<PreparedHalo<HaloLaunch>>(stage, halo_tile(tile), machine);
  }
};

}  // namespace

const Kernel& halo() {
  static const Halo kernel(served_by_halo);
  return kernel;
}

const Kernel& halo_sums() {
  static const Halo kernel(served_by_halo_sums);
  return kernel;
}

}  // namespace convoy::cuda::sm90
