// Tuning of chains: the tiles of the kernels that run all of one, beside its stages by themselves.
#pragma once

#include <string>
#include <vector>

#include "convoy/tune.hpp"
#include "core/chain.hpp"

namespace convoy {

/// In the rows of tuned chains, the name of no kernel: plans of the single stages.
inline constexpr const char* stages_by_themselves = "stages";

struct ChainTuneResult {
  OwnedChain chain;
  std::string arithmetic;     // of the kernel that a plan of the chain chooses
  std::vector<TuneRow> rows;  // the fastest first; those refused behind all others
  std::string saved_to;       // path of the cache; empty where saving was not asked for
};

/// As `tune`: measures every kernel and tile of the arithmetic that runs the chain, and its stages
/// by themselves, in turns. What writes other bits than the plan's choice, and stages of another
/// arithmetic, are refused: timed, never stored. save: writes the fastest to the tuning cache under
/// the chain's text. Throws Error where no kernel runs all of it.
ChainTuneResult tune_chain(const Chain& chain, const PlanOptions& options, double seconds,
                           bool save);

}  // namespace convoy
