// Runs too large for the oracle: of sizes at which 32 bits are not enough, or more images than the
// kernel takes at once.
//
// The images of such a run are a few drawn ones over and over. Each of some hundred images is
// compared, bit for bit, with that image run alone by the same kernel, which the oracle judges
// elsewhere: as small stages, and here with the sizes of this one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "verify/random.hpp"

namespace convoy::verify {

struct LargeRun {
  Stage stage;
  const Kernel* kernel = nullptr;
  std::string why;  // what is large in it
};

/// Bytes of the stage's operands from which on a run counts as large.
inline constexpr double large_bytes = 4e9;

/// Draws so many runs that take at most `bytes` of memory: just over what a kernel of the table
/// takes at once, or else where a tensor has 2^31 elements. `only`: of this kernel; empty: of any.
std::vector<LargeRun> draw_large(Random& random, const Machine& machine, Index count,
                                 const std::string& only, double bytes);

/// What the run found.
struct LargeResult {
  std::string failure;  // empty: none
  std::string skipped;  // why it was not made: memory
  Index images = 0;     // compared
  Index parts = 1;
};
LargeResult check_large(const LargeRun& run, std::uint64_t seed, const Machine& machine);

}  // namespace convoy::verify
