// Operands of random values for any stage, and the time that a plan takes on them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "convoy/plan.hpp"
#include "core/gpu_timing.hpp"
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
  Operands operands(const Stage& stage, std::size_t set = 0);
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

/// How a stage is timed by replays of a graph.
struct Replays {
  std::size_t runs = 1;  // in the graph
  int least = 1;         // replays, however short the time for them
};
/// Seconds of one run, for choose_replays: of up to four the least, as the first on a stream also
/// loads its kernel and wakes the GPU. One of 0.1 s and more is not run again. Throws Error.
double time_once(gpu::Graph& graph, const gpu::Graph::Enqueue& one);
/// For runs of about `once` seconds that go through so many sets of operands. Through all of them,
/// and at least 24, so that the graph's own start does not show. Where one such replay would take
/// longer than 24 ms and a quarter of `seconds`, fewer runs: a graph of 24 ms hides its start too.
/// One replay where three would take longer than `seconds` and a quarter of a second.
Replays choose_replays(double once, std::size_t sets, double seconds);

/// What was timed: seconds of one run, several times over; on a GPU each of a whole replay.
struct Samples {
  std::vector<double> seconds;
  int runs = 0;  // in all of them
};
Timing summary(Samples samples);

/// Calls until `seconds` are over, at least three times after one call that is not counted. `call`
/// gets the `sets` of operands in turn. On a GPU: times one call, then replays a graph of several,
/// as choose_replays says, until `seconds` are over. Throws Error when the GPU does.
Samples sample_calls(Device device, std::size_t sets,
                     const std::function<void(Stream, std::size_t set)>& call, double seconds);

/// A workspace for runs on one stream after another, as sample_calls makes them: those of a GPU's
/// plan are kept by the stream that ran first. Empty where there are no bytes, and on the CPU.
Tensor workspace_for_streams(std::size_t bytes, Device device);

/// Of the plan's runs, as sample_calls. Throws Error when one fails.
Timing time_runs(const Plan& plan, RandomOperands& random, double seconds);

}  // namespace convoy
