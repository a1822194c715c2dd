#include "inspect/kernel_map/ring_pipeline.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace convoy::inspect {

bool left_out(Index step, Index steps, int slots) {
  return step >= slots + shown_steps && step < steps - slots;
}

Pipeline ring_pipeline(int slots, int slot_bytes, Index steps, int threads, const std::string& when,
                       const std::function<std::string(Index)>& what) {
  const PipelineActor every{
      "every thread", threads,
      "copies its part of a step (cp.async), one group per step; multiplies",
      fmt::format("its own copies: cp.async.wait_group {}, all but the newest {} groups have come; "
                  "then the others', by a barrier of the CTA",
                  slots - 2, slots - 2)};
  return ring_pipeline(slots, slot_bytes, steps, every, what, [slots, &when](Index step) {
    return step == 0
               ? fmt::format("wait_group {} and a barrier: slot 0 is there", slots - 2)
               : fmt::format("{}, wait_group {} and a barrier: slot {} is there, slot {} is free",
                             when, slots - 2, step % slots, (step - 1) % slots);
  });
}

Pipeline ring_pipeline(int slots, int slot_bytes, Index steps, const PipelineActor& every,
                       const std::function<std::string(Index)>& what,
                       const std::function<std::string(Index)>& until) {
  Pipeline pipe;
  pipe.steps = steps;
  pipe.prologue = static_cast<int>(std::min<Index>(slots - 1, steps));
  pipe.rings.push_back({"pixels and weights", slots, slot_bytes, steps});
  pipe.actors.push_back(every);
  const auto load = [&](Index step) {
    return PipelineLoad{0, step, static_cast<int>(step % slots), what(step)};
  };
  for (int i = 0; i < pipe.prologue; ++i) {
    PipelineLine line;
    line.loads.push_back(load(i));
    if (i + 1 == pipe.prologue) line.waits = until(0);
    pipe.lines.push_back(std::move(line));
  }
  for (Index step = 0; step < steps; ++step) {
    if (left_out(step, steps, slots)) {
      if (pipe.left_out++ == 0) pipe.left_out_at = pipe.lines.size();
      continue;
    }
    PipelineLine line;
    line.step = step;
    line.math_slots = {static_cast<int>(step % slots)};
    const Index next = step + slots - 1;
    line.phase = next < steps ? PipelinePhase::loop : PipelinePhase::drain;
    if (next < steps) line.loads.push_back(load(next));
    if (step + 1 < steps) line.waits = until(step + 1);
    pipe.lines.push_back(std::move(line));
  }
  return pipe;
}

}  // namespace convoy::inspect
