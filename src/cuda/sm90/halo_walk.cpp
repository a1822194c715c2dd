// How many tiles a run of the halo family takes, and CTAs to walk over them.
#include <algorithm>

#include "cuda/sm90/halo_layout.hpp"

namespace convoy::cuda::sm90 {

int halo_places_of(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                   Index images) {
  if (tile.inner == Inner::line)
    return layout.k_blocks * ceil_div(images * stage.h * stage.w, tile.cta_columns());
  return layout.k_blocks * layout.tiles_x * layout.tiles_y * ceil_div(images, tile.bn);
}

int halo_grid_of(const HaloLayout& layout, int places) {
  return layout.resident ? layout.grid : std::min(layout.grid, places);
}

int halo_tiles_of(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                  Index images) {
  const int places = halo_places_of(stage, tile, layout, images),
            turns = static_cast<int>(halo_turns(stage, tile));
  if (turns == 1) return places;
  const int round = halo_grid_of(layout, places) * (layout.pingpong ? 2 : 1);
  return ceil_div(places, round) * round * turns;
}

}  // namespace convoy::cuda::sm90
