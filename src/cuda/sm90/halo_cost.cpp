// How long a tile of the halo family should take.
#include "cuda/sm90/halo_cost.hpp"

#include <algorithm>

namespace convoy::cuda::sm90 {
namespace {

/// What the model works with: everything in cycles.
struct Model {
  const Stage& stage;
  const HaloTile& tile;
  const HaloLayout& layout;
  const HaloCosts& costs;
  int sms;

  bool pingpong() const { return tile.schedule == Schedule::pingpong; }
  bool pooled() const { return stage.pool.has_value(); }
  /// Tiles of a place, and steps in the epilogue of each.
  double turns() const { return static_cast<double>(halo_turns(stage, tile)); }
  double held() const { return static_cast<double>(stage.hold ? stage.t : 1); }
  double warpgroups() const { return pingpong() ? 1 : 2; }  // that work on a tile
  /// Whether the stage leaves out what its stride passes over.
  bool skips() const { return stage.r == 1 && stage.s == 1; }
  double l2() const { return costs.l2 * sms; }
  double weights() const { return static_cast<double>(layout.slabs_a_tile()) * layout.w_slot; }

  /// Math, and between two slabs what one tap in flight does not cover, and a gap in any case. The
  /// fit's taps are of four steps.
  double math() const {
    const int n = tile.instruction_n(), steps = halo_steps(stage, tile);
    const double step =
        std::max(n / 2.0, 32.0) * (n < 64 ? costs.narrow : 1) * tile.instructions() * warpgroups();
    const double gap = (!pingpong()     ? costs.gap
                        : tile.resident ? costs.gap_resident
                                        : costs.gap_pingpong) +
                       std::max(0.0, costs.uncovered - costs.covered * step * steps / 4);
    return 1.0 * steps * layout.chunks * layout.taps * step *
               (tile.instructions() > 1 ? costs.several : 1) +
           layout.slabs_a_tile() * gap;
  }
  /// Of one tile, whose loads hide under its math or it under them. All CTAs share the L2; each
  /// slot takes a producer's time, and each pixel of a box the copy engine's. Among equals resident
  /// weights win: the last term only orders them.
  double tile_cycles() const {
    const double slabs = layout.slabs_a_tile(), slots = layout.slots_a_tile();
    const double pixel =
        !skips() && stage.stride != Extent{1} ? costs.skipping * costs.pixel : costs.pixel;
    const double boxes = static_cast<double>(layout.chunks) * layout.boxes * layout.box_bytes;
    const double streamed = tile.resident ? 0 : weights();
    const double loads = (boxes + streamed) * layout.grid / l2();
    const bool box_a_tap = !tile.resident && layout.taps > 1 && layout.boxes == layout.taps;
    const double producing = std::max(
        (box_a_tap ? costs.box_a_tap : 1) * costs.slot * std::max(slots, tile.resident ? 0 : slabs),
        pixel * boxes / row_bytes);
    return std::max({math(), loads, producing}) + costs.hidden_loads * std::min(math(), loads) +
           (tile.resident ? 0 : 1e-6 * loads);
  }
  double pixels() const { return tile.instruction_n() * tile.instructions(); }
  double neuron() const { return stage.act.is_neuron() ? costs.neuron_pixel * pixels() : 0; }
  double epilogue() const {
    return costs.epilogue + held() * (costs.epilogue_pixel * pixels() + neuron()) +
           (pooled() ? 0 : held() * costs.epilogue_plain * tile.instructions());
  }
  /// Bytes of y for one of the 64 channels' f16.
  double wide() const { return gives_sums(stage) ? 2 : 1; }
  double store() const {
    return wide() * held() * warpgroups() * (pooled() ? pixels() / 4.0 : pixels()) * row_bytes /
           costs.store;
  }
  /// Of all tiles. Two warpgroups in turns each need their own math and epilogue.
  double tiles() const {
    const Index round = Index{layout.grid} * (turns() > 1 && pingpong() ? 2 : 1);
    const double walk =
        static_cast<double>((layout.tiles() + round - 1) / round * round / layout.grid) * turns();
    const double one = tile_cycles();
    if (!pingpong()) return walk * std::max(one + epilogue(), store());
    const double pair = walk > 1 ? std::max((one + epilogue()) / 2, store()) : 0;
    return walk * std::max(one, pair) + epilogue();
  }
  /// What shows beside the tiles: the last one's store, and some of the load of weights that stay.
  /// A launch that leaves half of the multiprocessors free lets the next one start there.
  double around() const {
    return (layout.crowded ? costs.crowded : 0) + last_store() +
           (tile.resident ? costs.first_weights * weights() * layout.grid / l2() : 0);
  }
  double last_store() const { return costs.last_store * store(); }
  /// Bytes that the stage reads and writes: they hide under its tiles, or those under them.
  double bytes() const {
    const Shapes& shapes = layout.shapes;
    return value_bytes * (static_cast<double>(shapes.x_elements) /
                              static_cast<double>(skips() ? stage.stride.h * stage.stride.w : 1) +
                          wide() * static_cast<double>(shapes.y_elements));
  }
};

}  // namespace

namespace {

/// Calls with the model, and with cycles and hertz: those of the tiles, bytes included.
template <class Use>
auto with_model(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                const DeviceFacts& device, const HaloCosts& costs, Use use) {
  const Model model{stage, tile, layout, costs, device.sms};
  const Loaded loaded(device, costs.clock, costs.memory);
  const double reached = loaded.memory * layout.grid / device.sms;  // by the CTAs that there are
  return use(model, std::max(model.tiles(), model.bytes() / reached), loaded.clock);
}

}  // namespace

double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                    const DeviceFacts& device, const HaloCosts& costs) {
  return with_model(stage, tile, layout, device, costs,
                    [](const Model& model, double tiles, double hertz) {
                      return (model.around() + tiles) / hertz;
                    });
}

double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                    const DeviceFacts& device) {
  return halo_seconds(stage, tile, layout, device, HaloCosts());
}

Phases halo_phases(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                   const DeviceFacts& device) {
  return with_model(stage, tile, layout, device, HaloCosts(),
                    [](const Model& model, double tiles, double hertz) {
                      const double store = model.last_store(), last = model.epilogue();
                      return Phases{(model.around() - store) / hertz, (tiles - last) / hertz,
                                    (last + store) / hertz};
                    });
}

}  // namespace convoy::cuda::sm90
