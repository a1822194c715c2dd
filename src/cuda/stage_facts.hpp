// What the GPU's families say of a stage before anything runs: its type, its cost, whether its
// sizes fit. Plain arithmetic.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "core/kernel.hpp"

namespace convoy::cuda {

/// The type a stage multiplies in: that of its 16-bit input; for u8 the output's; else fp32.
/// Weights are rounded to it.
DType compute_type(const Stage& stage);

/// A cost from its predicted seconds: bytes that a run must move, operations with `waste` (a share)
/// of them thrown away.
Cost cost_of(const Stage& stage, double seconds, double waste);

/// Every size of a legal stage that the fast families' 32-bit positions, or TMA's strides below
/// 2^40 bytes, do not hold; empty: all fit.
std::vector<std::string> too_large(const Stage& stage);

/// Fast families count tiles in 32 bits, and divide their numbers by the number in a row, in
/// a column and of channel blocks (cuda/divide.hpp): whether all that is exact for these.
bool countable(std::initializer_list<Index> tiles_along_axes);
inline constexpr const char* too_many_tiles = "more tiles than the kernel's 32-bit numbers count";

}  // namespace convoy::cuda
