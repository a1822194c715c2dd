// Pipelines of one ring, whose threads copy for themselves, and what charts leave out.
#pragma once

#include <functional>

#include "inspect/kernel_map/pipeline.hpp"

namespace convoy::inspect {

/// Steps that are shown from the begin, beyond the slots, and at the end: the loop between them
/// repeats itself.
constexpr Index shown_steps = 6;
/// Whether the chart of a pipeline of so many steps leaves `step` out.
bool left_out(Index step, Index steps, int slots);

/// `slots` of them; the load of step i + slots - 1 begins under the math of step i, into the slot
/// that was read in step i - 1. `what(step)` names what a step loads, `until(step)` what is waited
/// for before it is multiplied.
Pipeline ring_pipeline(int slots, int slot_bytes, Index steps, const PipelineActor& every,
                       const std::function<std::string(Index)>& what,
                       const std::function<std::string(Index)>& until);
/// The same by cp.async. `when`: at which place of a step its threads wait for the next one.
Pipeline ring_pipeline(int slots, int slot_bytes, Index steps, int threads, const std::string& when,
                       const std::function<std::string(Index)>& what);

}  // namespace convoy::inspect
