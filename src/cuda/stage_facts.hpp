// What the GPU's families say of a stage before anything runs: its type, its cost. Plain
// arithmetic.
#pragma once

#include "core/kernel.hpp"

namespace convoy::cuda {

/// The type a stage multiplies in: that of its 16-bit input; for u8 the output's; else fp32.
/// Weights are rounded to it.
DType compute_type(const Stage& stage);

/// A cost from its predicted seconds: bytes that a run must move, operations with `waste` (a share)
/// of them thrown away.
Cost cost_of(const Stage& stage, double seconds, double waste);

}  // namespace convoy::cuda
