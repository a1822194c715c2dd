// What a neuron adds to the map of `halo`: time steps, and membranes in registers.
#include <fmt/core.h>

#include <cmath>

#include "convoy/error.hpp"
#include "inspect/kernel_map/halo_map.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

TilePlace HaloMap::in_step(const TilePlace& tile, Index t) const {
  if (t == tile.t) return tile;
  const Index inputs = halo_inputs(stage());
  if (t >= inputs)
    throw Error(
        inputs == 1
            ? fmt::format("explain: --block: found time step {}, but a tile of this stage "
                          "serves all of its steps",
                          t)
            : fmt::format("explain: --block: found time step {}, expected 0 to {}", t, inputs - 1));
  return tile_of_place(static_cast<int>(tile.x) * l_.k_blocks + static_cast<int>(tile.y), t);
}

std::string HaloMap::charge_text() const {
  if (stage().act.kind != Activation::Kind::lif) return "v + x";
  return fmt::format("v + (x - v)/{:.6g}", stage().act.tau());
}

std::vector<MapFact> HaloMap::neuron_facts() const {
  const int sums = tile_of_.instruction_n() * tile_of_.instructions() / 2;
  std::vector<MapFact> all;
  all.push_back(
      {"time steps", fmt::format("{}", stage().t),
       held() > 1 ? "of one held input: a tile's sums are made once, and the steps are its "
                    "epilogue's"
       : l_.time_steps == 1
           ? fmt::format("with an input each: {} tiles of a place, in order of time", turns_)
           : fmt::format(
                 "with an input each, {} of them in a tile, between its rows: {} of a place",
                 l_.time_steps, turns_ == 1 ? "one tile" : std::to_string(turns_) + " tiles")});
  all.push_back({"neuron", charge_text(),
                 fmt::format("charges the membrane v with a sum and its bias, in fp32; fires from "
                             "{:.6g} on, and is then {}",
                             stage().act.threshold(), stage().soft ? "that much lower" : "0")});
  const int membranes = sums / tile_of_.time_steps;
  all.push_back({"membranes", fmt::format("{}", membranes),
                 fmt::format("registers of a consumer's thread, v[{}][{}]: one beside {}, "
                             "from the first step to the last",
                             tile_of_.instructions(), membranes / tile_of_.instructions(),
                             l_.time_steps == 1 ? std::string("each accumulator")
                                                : fmt::format("{} accumulators, a pixel's steps",
                                                              l_.time_steps))});
  return all;
}

std::string HaloMap::neuron_does() const {
  if (!neuron()) return {};
  if (l_.time_steps > 1)
    return fmt::format("; before it stores, the neurons: {} times charge and reset", l_.time_steps);
  return held() > 1
             ? fmt::format("; between them {} times: charge, store the spikes, reset", held())
             : "; before it stores, the neurons: charge, and after it, reset";
}

std::vector<std::string> HaloMap::neuron_notes(const TilePlace& tile) const {
  if (held() > 1)
    return {fmt::format(
        "neurons: v[i][e] belongs to d[i][e]; steps 0 to {} charge {} from the same sums, one "
        "after the other",
        held() - 1, charge_text())};
  const Index first = tile.t / l_.time_steps * l_.time_steps;
  const char* begins = first == 0 ? "begins with the membranes that are given, or 0"
                                  : "goes on with those of the tile before, in the same registers";
  if (l_.time_steps == 1)
    return {fmt::format("neurons: v[i][e] belongs to d[i][e]; time step {} of {} {}", tile.t,
                        stage().t, begins)};
  return {fmt::format(
      "neurons: v[i][4*y + e] belongs to d[i][4*({0}*y + t) + e], t from 0 to {1}; "
      "the tile has time steps {2} to {3} of {4} and {5}",
      l_.time_steps, l_.time_steps - 1, first, first + l_.time_steps - 1, stage().t, begins)};
}

}  // namespace convoy::inspect
