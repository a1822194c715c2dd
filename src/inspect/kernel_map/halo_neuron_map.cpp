// What a neuron adds to the map of `halo`: time steps, membranes in registers, and what the CTAs of
// a cluster exchange.
#include <fmt/core.h>

#include <cmath>

#include "convoy/error.hpp"
#include "inspect/kernel_map/halo_map.hpp"

namespace convoy::inspect {

using namespace cuda::sm90;

TilePlace HaloMap::in_step(const TilePlace& tile, Index t) const {
  if (t == tile.t) return tile;
  if (t >= turns_)
    throw Error(
        turns_ == 1
            ? fmt::format("explain: --block: found time step {}, but a tile of this stage "
                          "serves all of its steps",
                          t)
            : fmt::format("explain: --block: found time step {}, expected 0 to {}", t, turns_ - 1));
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
       turns_ == 1 && stage().t > 1
           ? "of one held input: a tile's sums are made once, and the steps are its "
             "epilogue's"
           : fmt::format("with an input each: {} tiles of a place, in order of time", turns_)});
  all.push_back({"neuron", charge_text(),
                 fmt::format("charges the membrane v with a sum and its bias, in fp32; fires from "
                             "{:.6g} on, and is then {}",
                             stage().act.threshold(), stage().soft ? "that much lower" : "0")});
  if (spread_ == 0) {
    all.push_back({"membranes", fmt::format("{}", sums),
                   fmt::format("registers of a consumer's thread, v[{}][{}]: one beside each "
                               "accumulator, from the first step to the last",
                               tile_of_.instructions(), tile_of_.instruction_n() / 2)});
    return all;
  }
  const int ctas = 1 << spread_;
  all.push_back({"cluster", fmt::format("{} CTAs", ctas),
                 fmt::format("take a place's steps between them: each makes the sums of its step, "
                             "and does the neurons of a {} of the accumulators for all {} steps",
                             ctas == 2 ? "half" : "quarter", ctas)});
  all.push_back({"membranes", fmt::format("{}", sums / ctas),
                 "registers of a consumer's thread: of its CTA's part of the accumulators"});
  return all;
}

std::vector<SharedRegion> HaloMap::exchange_regions() const {
  if (spread_ == 0) return {};
  const HaloExchange exchange = exchange_of(tile_of_);
  const int begin = l_.end();
  return {
      {"exchange: barriers", begin, exchange.words_offset(),
       "two of each consumer warp: all sums are there, all spikes are"},
      {"exchange: spikes", begin + exchange.words_offset(),
       exchange.sums_offset() - exchange.words_offset(),
       fmt::format("a word of each thread from each of {} CTAs", 1 << spread_)},
      {"exchange: sums", begin + exchange.sums_offset(), exchange.bytes() - exchange.sums_offset(),
       fmt::format("{} of each thread, which the CTAs of the cluster read", exchange.sums)}};
}

std::string HaloMap::neuron_does() const {
  if (!neuron()) return {};
  if (spread_ > 0)
    return "; before it stores, its cluster's neurons: sums to all CTAs, spikes of its step back";
  return held() > 1
             ? fmt::format("; between them {} times: charge, store the spikes, reset", held())
             : "; before it stores, the neurons: charge, and after it, reset";
}

std::vector<std::string> HaloMap::neuron_notes(const TilePlace& tile, int thread) const {
  const int registers = tile_of_.instruction_n() / 2 * tile_of_.instructions();
  std::vector<std::string> notes;
  if (spread_ > 0) {
    const int ctas = 1 << spread_, part = registers / ctas;
    const int rank = static_cast<int>(tile.cta % ctas), first = rank * part;
    notes.push_back(fmt::format(
        "neurons: this CTA is number {} of its cluster and has the membranes of accumulators {} to "
        "{}, in steps {} to {}; its own step is {}",
        rank, first, first + part - 1, tile.t / ctas * ctas, tile.t / ctas * ctas + ctas - 1,
        tile.t));
    const auto output = output_of(tile, thread, first);
    if (output)
      notes.push_back(fmt::format("v[0]: membrane of (n {}, p {}, q {}, k {})", output->n,
                                  output->p, output->q, output->k));
    return notes;
  }
  notes.push_back(
      held() > 1 ? fmt::format(
                       "neurons: v[i][e] belongs to d[i][e]; steps 0 to {} charge {} from the same "
                       "sums, one after the other",
                       held() - 1, charge_text())
                 : fmt::format("neurons: v[i][e] belongs to d[i][e]; time step {} of {} {}", tile.t,
                               stage().t,
                               tile.t == 0 ? "begins with the membranes that are given, or 0"
                                           : "goes on with those of the tile before, in the same "
                                             "registers"));
  return notes;
}

}  // namespace convoy::inspect
