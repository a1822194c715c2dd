// What it takes until a stage can run.
#pragma once

#include "convoy/plan.hpp"

namespace convoy::bench {

/// Seconds, each the median of several, in a process that has made such a plan before.
struct PlanTimes {
  double plan = 0;  // to make a plan without weights
  double pack =
      0;  // to pack the weights into the kernel's layout; on a GPU also to send them there
};

/// w: [K,R,S,C/groups] f32 on the host. Throws Error where the stage does not fit.
PlanTimes time_plan(const Stage& stage, const ConstTensorView& w, const PlanOptions& options);

}  // namespace convoy::bench
