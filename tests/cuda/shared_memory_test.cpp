// What `explain --map` says lies in shared memory is what the kernels' loads put there: every 16
// bytes of x and w carry their place, and a kernel copies its slots out.
#include "shared_memory.hpp"

#include <gtest/gtest.h>

#include "core/gpu.hpp"
#include "cuda/device.hpp"
#include "gpu_case.hpp"
#include "inspect/kernel_map/halo_map.hpp"
#include "inspect/kernel_map/window_map.hpp"
#include "verify/random.hpp"

namespace convoy {
namespace {

using inspect::InputElement;
using inspect::TilePlace;

class GpuSharedMemory : public GpuTest {};

Stage draw_mapped(verify::Random& random, bool groups) {
  while (true) {
    Stage s;
    s.dtype = DType::f16;
    s.n = random.between(1, 9);
    s.h = random.between(4, 30), s.w = random.between(4, 30);
    s.r = random.between(1, 4), s.s = random.between(1, 4);
    s.stride = Extent(random.between(1, 2), random.between(1, 2));
    s.dil = Extent(random.between(1, 2), random.between(1, 2));
    for (Index* side : {&s.pad.top, &s.pad.left, &s.pad.bottom, &s.pad.right})
      *side = random.between(0, 3);
    s.groups = groups && random.chance(0.4) ? random.pick({2, 4, 8}) : 1;
    s.c = s.groups * 8 * random.between(1, 24), s.k = s.groups * 8 * random.between(1, 24);
    if (random.chance(0.5)) s.pool = max_pool(2);
    const Shapes shapes = problems(s).empty() ? shapes_of(s) : Shapes();
    if (shapes.out_h > 0 && shapes.out_w > 0) return s.normalised();
  }
}

std::size_t units(Index bytes) {
  return static_cast<std::size_t>(bytes / 16);
}

/// What must lie where the map says that `x` lies.
Unit expected(const InputElement& x) {
  return x.inside ? unit_of(units(x.byte)) : Unit{};
}

TEST_F(GpuSharedMemory, OfWindowIsAsTheMapSays) {
  using namespace cuda::sm80;
  const Machine machine = gpu::survey().machines.front();
  verify::Random random(231);
  int checked = 0, inside = 0;
  for (int drawn = 0; drawn < 40; ++drawn) {
    const Stage stage = draw_mapped(random, true);
    if (!window_refusals(stage, machine).empty()) continue;
    auto tiles = window_tiles(stage, machine);
    std::erase_if(tiles, [](const auto& tile) { return tile.box; });  // another kernel
    const auto& tile =
        tiles[static_cast<std::size_t>(random.between(0, static_cast<Index>(tiles.size()) - 1))];
    const inspect::WindowMap map(stage, tile, machine.name);
    const WindowSizes& at = map.sizes();
    const TilePlace cta = map.tile_at(random.between(0, Index{at.m_tiles} * at.n_tiles - 1), -1);
    const auto step = static_cast<int>(random.between(0, at.steps - 1));
    const Index w_bytes = at.groups.count * at.blocks * at.block_bytes;
    const std::vector<Unit> slots =
        window_slots(stage, tile, static_cast<int>(cta.cta), step,
                     units(shapes_of(stage).x_elements * 2), units(w_bytes));
    if (slots.empty()) continue;  // narrow: pieces of less than 16 bytes
    const WindowCta has(at, tile.m, tile.n, static_cast<int>(cta.cta));
    for (int i = std::max(0, step - tile.slots + 1); i <= step; ++i) {
      const int slot = i % tile.slots * tile.slot_bytes();
      for (int byte = 0; byte < tile.m * chunk_bytes; byte += 16) {
        const InputElement x = map.in_slot(cta, i, byte);
        ASSERT_EQ(slots[units(slot + byte)], expected(x))
            << to_text(stage) << " tile " << tile.name() << " CTA " << cta.cta << " step " << i
            << " byte " << byte;
        ++checked, inside += x.inside ? 1 : 0;
      }
      for (int row = 0; row < tile.n; ++row)
        for (int unit = 0; unit < cuda::sm80::chunk_units; ++unit) {
          const int block = has.filter / block_filters + row / block_filters;
          const Index packed = (Index{has.group} * at.blocks + block) * at.block_bytes +
                               Index{i} * slab_bytes + row % block_filters * chunk_bytes +
                               unit * unit_bytes;
          ASSERT_EQ(slots[units(slot + tile.m * chunk_bytes + swizzled(row, unit))],
                    block < at.blocks ? unit_of(units(packed)) : Unit{})
              << to_text(stage) << " tile " << tile.name() << " filter row " << row;
        }
    }
  }
  EXPECT_GT(checked, 10000);
  EXPECT_GT(inside, checked / 4);
  EXPECT_LT(inside, checked);
}

TEST_F(GpuSharedMemory, OfHaloIsAsTheMapSays) {
  using namespace cuda::sm90;
  const cuda::DeviceFacts device = cuda::facts_of(0);
  if (device.major != 9) GTEST_SKIP() << "skipped: no Hopper GPU";
  verify::Random random(232);
  int checked = 0, inside = 0, stages = 0;
  for (int drawn = 0; drawn < 60; ++drawn) {
    const Stage stage = draw_mapped(random, false);
    if (!halo_refusals(stage, device).empty() || !halo_serves(stage, device)) continue;
    const auto tiles = halo_tiles(stage, device);
    const HaloTile& tile =
        tiles[static_cast<std::size_t>(random.between(0, static_cast<Index>(tiles.size()) - 1))];
    const HaloLayout layout = halo_layout(stage, tile, device);
    const inspect::HaloMap map(stage, tile, layout, device.name);
    const auto number =
        static_cast<int>(random.between(0, std::min(layout.tiles(), Index{2000}) - 1));
    const TilePlace place = map.tile_at(number / layout.k_blocks, number % layout.k_blocks);
    const HaloSlots slots =
        halo_slots(stage, tile, layout, number, units(shapes_of(stage).x_elements * 2),
                   units(halo_weights_elements(stage) * 2));
    ++stages;
    Index load = -1;
    for (Index step = 0; step < layout.slabs_a_tile(); ++step) {
      // The slot of pixels that this slab reads, once each.
      const Index first_tap = step * layout.slab_taps;
      const bool opens = (layout.tap_shift[first_tap % layout.slot_taps()] & opens_slot) != 0;
      if (opens) {
        ++load;
        for (int byte = 0; byte < layout.x_slot; byte += 16) {
          const InputElement x = map.in_slot(place, step, byte);
          if (x.n < 0) continue;  // no load writes there
          ASSERT_EQ(slots.pixels[units(load * layout.x_slot + byte)], expected(x))
              << to_text(stage) << " tile " << tile.name() << " number " << number << " step "
              << step << " byte " << byte << " (n,h,w,c) " << x.n << "," << x.h << "," << x.w << ","
              << x.c;
          ++checked, inside += x.inside ? 1 : 0;
        }
      }
      for (int tap = 0; tap < layout.slab_taps; ++tap)
        for (int row = 0; row < layout.cta_channels; ++row)
          for (int unit = 0; unit < 8; ++unit) {
            const int byte = (tap * layout.cta_channels + row) * row_bytes + unit * 16;
            const Index k = place.y * layout.cta_channels + row;
            const Index packed = ((first_tap + tap) * stage.k + k) * row_bytes + unit * 16;
            ASSERT_EQ(
                slots.weights[units(step * layout.w_slot + inspect::HaloMap::swizzled128(byte))],
                k < stage.k ? unit_of(units(packed)) : Unit{})
                << to_text(stage) << " tile " << tile.name() << " slab " << step << " filter "
                << row;
          }
    }
    EXPECT_EQ(load + 1, layout.slots_a_tile()) << to_text(stage) << " " << tile.name();
  }
  EXPECT_GT(stages, 20);
  EXPECT_GT(checked, 10000);
  EXPECT_GT(inside, checked / 8);
  EXPECT_LT(inside, checked);
}

}  // namespace
}  // namespace convoy
