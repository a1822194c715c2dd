// What is timed must be right: a sample of the outputs against the oracle.
#pragma once

#include <functional>

#include "convoy/error.hpp"
#include "convoy/plan.hpp"
#include "core/chain.hpp"

namespace convoy::bench {

/// That the kernel is wrong, and a way to see it.
Error wrong_output(const Chain& chain, std::string_view kernel, DeviceKind device,
                   const std::string& why);

/// Poisons operands.y (host memory, dense) with NaN, calls `run`, which writes it, and compares
/// sampled pooling windows with the oracle in double. Returns max|y - y64| / max|y64| over them
/// (for a neuron the share of spikes that differ). Throws Error, which names the kernel and a way
/// to see it, when that is more than rounding explains, or an output was not written. The stage's
/// output type must be that of y.
double checked_error(const Stage& stage, const Operands& operands, const ConstTensorView& weights,
                     const Plan& plan, const std::function<void()>& run);

}  // namespace convoy::bench
