// A traced run of a stage: chosen as any plan's, on random operands, with time stamps from inside.
#pragma once

#include <string>

#include "convoy/plan.hpp"
#include "core/machine.hpp"
#include "core/trace.hpp"

namespace convoy {

struct TracedStage {
  Stage stage;
  Machine machine;
  std::string kernel, tile;
  RunTrace trace;
  bool same_bits = false;    // the traced run gave what a run without stamps gives
  std::size_t left_out = 0;  // tasks for which the log had no room
  double seconds = 0;        // of a run without stamps, measured just before; 0: not measured
  double hertz = 0;          // of a GPU\'s clock then
  double predicted = 0;      // seconds of a run, by the cost model
};

/// Runs the stage for about `seconds` without stamps, to measure it and to bring the machine to the
/// clock that it works at; 0: only as often as a trace needs. Then with stamps. Throws Error where
/// the stage is not legal, the kernel takes no stamps, memory runs out or the run fails.
TracedStage trace_stage(const Stage& stage, const PlanOptions& options, double seconds);

}  // namespace convoy
