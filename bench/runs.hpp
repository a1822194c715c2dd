// Ours, ready to be timed: a plan with everything that it reads and writes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bench/problem.hpp"
#include "convoy/plan.hpp"

namespace convoy::bench {

class Runs {
 public:
  virtual ~Runs() = default;
  /// max|y - y64| / max|y64| of the output, on sampled places.
  double error() const { return error_; }
  const Plan& plan() const { return plan_; }

  /// Runs for about `seconds` and returns the seconds of one run, several times over.
  virtual std::vector<double> turn(double seconds) = 0;
  /// The same on a GPU with a tiny foreign kernel behind each run, so that two runs can't overlap;
  /// empty where make_runs was not asked for it.
  virtual std::vector<double> turn_apart(double) { return {}; }
  /// Operations a second that the machine reaches right now: the FMA peak of the threads, or that
  /// of the GPU's units at the clock that it held at the end of the last turn.
  virtual double peak_flops() = 0;
  /// Of a GPU: peak_flops() / its clock; 0 on a CPU.
  virtual double flops_a_cycle() const { return 0; }

 protected:
  explicit Runs(Plan plan) : plan_(std::move(plan)) {}
  Plan plan_;
  double error_ = 0;
};

/// Seconds of each run, for about `seconds`, on the host's clock; one more run before.
std::vector<double> time_runs(const std::function<void()>& run, double seconds);

/// The stage by the plan that the options ask for, on `problem`'s data, which must outlive it.
/// Throws Error when the stage does not fit, or when its output is wrong. On a GPU: inputs and
/// outputs rotate over buffers that together exceed the L2 three times, and a turn replays a CUDA
/// graph of one launch for each, 24 at least, after a warm-up as long as itself; of stages that
/// take more than a millisecond as many as choose_replays says for turns of `seconds`. `apart`: a
/// GPU's turn_apart will be called.
std::unique_ptr<Runs> make_runs(const Stage& stage, const Problem& problem,
                                const PlanOptions& options, double seconds, bool apart = false);

/// Bytes a second, read and written both counted, of copies between blocks of a GPU's memory that
/// are larger than its L2.
double measure_gpu_copy_bandwidth(Device device);

}  // namespace convoy::bench
