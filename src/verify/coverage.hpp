// Coverage: which kernels, tiles, epilogues and tail cases checks went through.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "verify/parity.hpp"
#include "verify/random.hpp"

namespace convoy::verify {

/// "relu max2": what follows the sums of the last stage. The activation, and one of three kinds of
/// pool; or "mean".
std::string epilogue_of(const Chain& chain);

/// What is left over at the ends of tiles: "c tail" (C/groups no multiple of 8), "k tail" (K/groups
/// no multiple of 16), "pixel tail" (P or Q no multiple of 4), "one pixel" (y has one an image), of
/// any stage of the chain, or "whole" when nothing is.
std::vector<std::string> tails_of(const Chain& chain);

struct Cell {
  std::string kernel, tile, epilogue, tail;
  auto operator<=>(const Cell&) const = default;
};
/// The cells that the check counts for.
std::vector<Cell> cells_of(const Check& check);

using Coverage = std::map<Cell, Index>;

void count(const Check& check, Coverage& coverage);

/// Finds the cells that exist (`planned` and 22,000 draws tell) and draws checks until each will
/// have been counted at least `least` times. Returns the checks to do besides the planned ones.
/// `only`: a kernel's name, or empty for all.
std::vector<Check> fill_coverage(const std::vector<Check>& planned, Index least,
                                 const Machine& machine, std::string_view only, Random& random);

}  // namespace convoy::verify
