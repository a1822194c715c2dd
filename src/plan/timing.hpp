// Operands of random values for any stage, and the time that a plan takes on them.
#pragma once

#include <cstdint>

#include "convoy/plan.hpp"
#include "core/machine.hpp"

namespace convoy {

/// Owns every tensor that a run of the stage takes, on the device, and weights on the host: values
/// near 0, as a normalised network has them.
struct RandomOperands {
  Tensor x, weights, bias, norm_scale, norm_shift, y, pre, act, idx, membrane_in, membrane_out;
  explicit RandomOperands(const Stage& stage, std::uint64_t seed = 1, Device device = {});
  Operands operands(const Stage& stage) const;
};

/// Bytes that RandomOperands allocates.
double bytes_of_operands(const Stage& stage);

struct Timing {
  double median = 0, minimum = 0;  // seconds
  int runs = 0;
};

/// The machine with the peak and the copy bandwidth that it reaches right now, the best of a few
/// short measurements: whatever else runs on it can only make them smaller. A GPU keeps the peak
/// and the bandwidth that it was built for.
Machine measured(Machine machine);

/// Runs until `seconds` are over, at least three times after one run that is not counted.
/// Throws Error when a run fails.
Timing time_runs(const Plan& plan, const Operands& operands, double seconds);

}  // namespace convoy
