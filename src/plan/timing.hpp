// Operands of random values for any stage, and the time that a plan takes on them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "convoy/plan.hpp"
#include "core/machine.hpp"

namespace convoy {

/// Owns every tensor that a run of the stage takes, on the machine's device, and weights on the
/// host: values near 0, as a normalised network has them. On a GPU x and y exist in several copies,
/// together larger than its L2: a replayed run then finds no input where the last one left it.
struct RandomOperands {
  Tensor x, weights, bias, norm_scale, norm_shift, y, pre, act, idx, membrane_in, membrane_out;
  std::vector<Tensor> more_x, more_y;
  explicit RandomOperands(const Stage& stage, std::uint64_t seed = 1, const Machine& machine = {});
  std::size_t sets() const { return 1 + more_x.size(); }
  Operands operands(const Stage& stage, std::size_t set = 0) const;
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

/// Replays a graph of the `runs` runs that `enqueue` puts on a stream of a GPU, one replay after
/// the other until `seconds` are over, and at least three times. The times are those of one run.
/// Throws Error when the GPU does.
Timing time_replays(Device device, std::size_t runs, const std::function<void(Stream)>& enqueue,
                    double seconds);
/// So many runs in a graph that its own start does not show.
constexpr std::size_t least_replayed_runs = 24;

/// Runs until `seconds` are over, at least three times after one run that is not counted; on a GPU
/// by replays of a graph, through all sets of operands. Throws Error when a run fails.
Timing time_runs(const Plan& plan, const RandomOperands& random, double seconds);

}  // namespace convoy
