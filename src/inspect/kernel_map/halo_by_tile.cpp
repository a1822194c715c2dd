// The map of `halo`, or of its f32 sums, in the tile that is asked for.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "cuda/known_gpus.hpp"
#include "inspect/kernel_map/halo_map.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

namespace {

/// `why`: what the kernel refuses. Without a tile's name the model's first.
std::unique_ptr<KernelMap> by_tile(const char* kernel, std::vector<std::string> why,
                                   const Stage& stage, const Machine& machine,
                                   const std::string& tile) {
  const cuda::DeviceFacts device = cuda::facts_of(machine);
  const std::vector<HaloTile> tiles =
      why.empty() ? halo_tiles(stage, device) : std::vector<HaloTile>();
  if (why.empty() && tiles.empty())
    why.emplace_back("no tile of the family serves this filter, stride and pool");
  if (!why.empty())
    throw Error(fmt::format("explain: kernel {} has no map of {} on {}: {}", kernel, to_text(stage),
                            machine.name, fmt::join(why, "; ")));
  for (const HaloTile& one : tiles)
    if (tile.empty() || one.name() == tile)
      return std::make_unique<HaloMap>(stage, one, halo_layout(stage, one, device), machine.name);
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(tiles.size(), 8); ++i)
    names += (i ? ", " : "") + tiles[i].name();
  throw Error(fmt::format("explain: --tile \"{}\": {} has {} tiles for this stage: {}{}", tile,
                          kernel, tiles.size(), names, tiles.size() > 8 ? ", ..." : ""));
}

}  // namespace

std::unique_ptr<KernelMap> map_halo(const Stage& stage, const Machine& machine,
                                    const std::string& tile) {
  return by_tile("halo", halo_refusals(stage, cuda::facts_of(machine)), stage, machine, tile);
}

std::unique_ptr<KernelMap> map_halo_sums(const Stage& stage, const Machine& machine,
                                         const std::string& tile) {
  return by_tile("halo_sums", halo_sums_refusals(stage, cuda::facts_of(machine)), stage, machine,
                 tile);
}

}  // namespace convoy::inspect
