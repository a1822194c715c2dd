#include "cuda/sm80/window_tile.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "core/size.hpp"
#include "cuda/refusals.hpp"
#include "cuda/stage_facts.hpp"
#include "math/divide.hpp"

namespace convoy::cuda::sm80 {
namespace {

int bytes_of(const Stage& stage) {
  return static_cast<int>(size_of(stage.dtype));
}

WindowGroups groups_of(const Stage& stage) {
  const auto i = [](Index v) { return static_cast<int>(v); };
  WindowGroups groups;
  groups.own_channels = i(stage.c / stage.groups);
  groups.own_filters = i(stage.k / stage.groups);
  groups.merged = std::max(1, std::min({i(stage.groups), block_filters / groups.own_channels,
                                        block_filters / groups.own_filters}));
  groups.channels = groups.merged * groups.own_channels;
  groups.filters = groups.merged * groups.own_filters;
  groups.count = i(math::ceil_div(stage.groups, groups.merged));
  if (groups.merged == 1) return groups;
  groups.live = 0;
  const int of_part = product_bytes / bytes_of(stage), parts = (groups.channels - 1) / of_part + 1;
  for (int part = 0; part < parts; ++part)
    for (int j = 0; j < block_filters / 8; ++j) {
      const int last = std::min(8 * j + 7, groups.filters - 1);
      if (8 * j > last) continue;
      const int from = 8 * j / groups.own_filters * groups.own_channels,
                to = (last / groups.own_filters + 1) * groups.own_channels;
      if (from < (part + 1) * of_part && to > part * of_part) groups.live |= 1U << (4 * part + j);
    }
  return groups;
}

// What 16-byte copies ask of a dense x; any other x takes `narrow` at run time.
bool copies_whole(const Stage& stage, const WindowGroups& groups) {
  const Index size = bytes_of(stage);
  return stage.c * size % unit_bytes == 0 &&
         (groups.count == 1 || groups.channels * size % unit_bytes == 0);
}

// One chunk of 16-bit channels and one block of filters; the taps' weights fill the registers. Of
// groups of one channel next to all products are thrown away: they are `depthwise`'s. Merged groups
// whose filters take both parts would multiply what other tiles leave out, and that may be NaN.
std::vector<WindowTile> box_tiles(const Stage& stage, const WindowGroups& groups) {
  std::vector<WindowTile> tiles;
  if (bytes_of(stage) != 2 || groups.channels * bytes_of(stage) > chunk_bytes ||
      groups.filters > block_filters || groups.own_channels == 1 ||
      (groups.merged > 1 && box_parts(groups, stage.dtype) == 2))
    return tiles;
  for (const WindowTile& tile : {box128, box256, box64})
    if (box_of(stage, tile).pixels() > 0) tiles.push_back(tile);
  return tiles;
}

std::vector<WindowTile> all_tiles(const Stage& stage) {
  const WindowGroups groups = groups_of(stage);
  const bool wide = widens(stage);
  if (!copies_whole(stage, groups) || stage.r > most_taps_along || stage.s > most_taps_along)
    return stage.pool || wide ? std::vector{narrow} : std::vector{narrow, narrow_shared};
  std::vector<WindowTile> boxes;
  if (!wide) boxes = box_tiles(stage, groups);
  if (groups.filters <= block_filters) {
    boxes.push_back(block_wide);
    if (groups.merged == 1) boxes.push_back(small);
    return boxes;
  }
  if (stage.dtype == DType::f32) {
    std::vector<WindowTile> tiles{half_large, small};
    if (!stage.pool) tiles.push_back(half_small);
    return tiles;
  }
  // Sums that are added apart leave no registers for larger tiles.
  if (groups.filters <= 64 || wide) return {half_large, small};
  std::vector<WindowTile> tiles{large, half_large, small, large_pairs};
  if (groups.filters > 128) tiles.insert(tiles.end(), {largest, wide_pairs});
  tiles.push_back(tall_pairs);  // as fast as wide_pairs by the cost model, and 1 % slower
  if (stage.dtype != DType::f16) return tiles;
  tiles.push_back(large_analytic);
  if (stage.r * stage.s <= most_table_taps) tiles.push_back(large_precomputed);
  return tiles;
}

}  // namespace

std::string WindowTile::name() const {
  if (box) return fmt::format("box{}", m);
  const char* how = "";
  if (narrow)
    how = warp_m < 32 ? ".narrow.shared" : ".narrow";
  else if (visit == Visit::analytic)
    how = ".analytic";
  else if (visit == Visit::precomputed)
    how = ".precomputed";
  else if (pairs)
    how = ".pairs";
  return fmt::format("{}x{}{}", m, n, how);
}

void refuse_window(const Stage& stage, const Machine& machine, Reasons& why) {
  Refusals(stage, why)
      .no(machine.compute_capability < 80,
          fmt::format("compute capability {}.{}, the family needs 8.0 (cp.async)",
                      machine.compute_capability / 10, machine.compute_capability % 10))
      .no(stage.dtype == DType::f32 &&
              stage.r * stage.s * (stage.c / stage.groups) < least_products,
          fmt::format("{} products an output: three of tf32 for one of f32 are as exact from {} on",
                      stage.r * stage.s * (stage.c / stage.groups), least_products))
      .within(window_limits)
      .no(machine.shared_memory_bytes < static_cast<std::size_t>(largest.shared_bytes()),
          fmt::format("a CTA may have {} bytes of shared memory, the family needs {}",
                      machine.shared_memory_bytes, largest.shared_bytes()));
}

Reasons window_refusals(const Stage& stage, const Machine& machine) {
  Reasons why = unserved(stage, served_by_window, DeviceKind::cuda);
  refuse_window(stage, machine, why);
  return why;
}

std::vector<WindowTile> window_tiles(const Stage& stage, const Machine& machine) {
  std::vector<WindowTile> tiles = all_tiles(stage);
  std::erase_if(tiles, [&](const WindowTile& tile) {
    return machine.shared_memory_bytes < static_cast<std::size_t>(tile.shared_bytes());
  });
  return tiles;
}

WindowSizes window_sizes(const Stage& stage, const WindowTile& tile) {
  const auto i = [](Index v) { return static_cast<int>(v); };
  const Shapes shapes = shapes_of(stage);
  WindowSizes at;
  at.groups = groups_of(stage);
  at.c = i(stage.c), at.k = i(stage.k);
  at.g.rows = math::conv_rows<int>(stage), at.g.columns = math::conv_columns<int>(stage);
  at.g.r = i(stage.r), at.g.s = i(stage.s);
  at.g.window = stage.pool ? 2 : 1;
  at.g.down = FastDivisor(i(shapes.out_h)), at.g.across = FastDivisor(i(shapes.out_w));
  at.chunks = (at.groups.channels * bytes_of(stage) - 1) / chunk_bytes + 1;
  at.steps = at.chunks * at.g.r * at.g.s;
  at.blocks = (at.groups.filters - 1) / block_filters + 1;
  at.block_bytes = Index{at.steps} * slab_bytes;
  at.in_order = tile.sparse || at.groups.merged > 1;
  if (tile.box) at.box = box_of(stage, tile);
  set_images(at, tile, stage.n);
  return at;
}

void set_images(WindowSizes& sizes, const WindowTile& tile, Index images) {
  WindowGeometry& g = sizes.g;
  sizes.images = static_cast<int>(images);
  g.m = static_cast<int>(images * g.down.d * g.across.d * g.window * g.window);
  sizes.m_tiles = std::max(1, (g.m - 1) / tile.m + 1);
  const int of_group = (sizes.groups.filters - 1) / tile.n + 1;
  sizes.of_group = FastDivisor(of_group);
  sizes.n_tiles = sizes.groups.count * of_group;
  if (tile.box) {
    WindowBox& box = sizes.box;
    box.count = ((sizes.images - 1) / box.images + 1) * static_cast<int>(box.of_image.d);
    const int each = (box.count * sizes.n_tiles - 1) / sizes.box_ctas + 1;
    sizes.m_tiles = (box.count - 1) / each + 1;
    box.slots = each > 1 ? 2 : 1;
    sizes.order = CtaOrder(sizes.m_tiles, sizes.n_tiles, sizes.n_tiles);
    return;
  }
  // Groups share no pixels: neighbours in m find taps of theirs.
  sizes.order = CtaOrder(sizes.m_tiles, sizes.n_tiles,
                         sizes.groups.count > 1 ? 1 : std::min(sizes.n_tiles, 8));
}

std::vector<float> window_weights(const Stage& stage, bool in_order, const float* w) {
  const WindowGroups groups = groups_of(stage);
  const Index of_chunk = chunk_bytes / bytes_of(stage), taps = stage.r * stage.s;
  const Index blocks = math::ceil_div(groups.filters, block_filters),
              chunks = math::ceil_div(groups.channels, of_chunk);
  std::vector<float> packed(
      static_cast<std::size_t>(groups.count * blocks * chunks * taps * block_filters * of_chunk));
  for (Index k = 0; k < stage.k; ++k) {
    const Index group = k / groups.filters, filter = k % groups.filters;
    const Index first = filter / groups.own_filters * groups.own_channels;
    const Index row = row_of_filter(static_cast<int>(filter % block_filters), in_order);
    for (Index tap = 0; tap < taps; ++tap)
      for (Index own = 0; own < groups.own_channels; ++own) {
        const Index c = first + own;
        const Index step =
            (group * blocks + filter / block_filters) * chunks * taps + c / of_chunk * taps + tap;
        packed[static_cast<std::size_t>((step * block_filters + row) * of_chunk + c % of_chunk)] =
            w[(k * taps + tap) * groups.own_channels + own];
      }
  }
  return packed;
}

}  // namespace convoy::cuda::sm80
