// A chain that one kernel runs, timed beside its stages by plans of their own.
#pragma once

#include "bench/harness.hpp"
#include "core/chain.hpp"

namespace convoy::bench {

/// Operations of a direct convolution, of all stages and time steps; of a held input once.
double flops_of(const Chain& chain);

/// The chain by the planner's kernel or `options.plan.kernel`, in turns with "stage by stage",
/// which is the row's only peer. Peers, other modes and other types of `options` do not count.
/// Throws Error where no kernel runs all of the chain, or when its output is wrong: it is compared
/// with the oracle on up to three images, on one, or not at all where that is too much for the
/// oracle
/// (`Row::checked` is false then).
Row run(const Chain& chain, const Options& options);

}  // namespace convoy::bench
