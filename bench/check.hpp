// What is timed must be right: a sample of the outputs against the oracle.
#pragma once

#include "convoy/plan.hpp"

namespace convoy::bench {

/// Runs the plan once on NaN-poisoned outputs and compares sampled pooling windows with the oracle
/// in double. Returns max|y - y64| / max|y64| over them (for a neuron the share of spikes that
/// differ). Throws Error when that is more than rounding explains, or an output was not written.
double checked_error(const Stage& stage, const Operands& operands, const TensorView& weights,
                     const Plan& plan);

/// Stores `value` as f16 or bf16 at element i of a contiguous view.
void store_half(const TensorView& view, Index i, float value);

}  // namespace convoy::bench
