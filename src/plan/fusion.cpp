#include "plan/fusion.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "core/gpu.hpp"
#include "plan/select.hpp"

namespace convoy {

Fusion judge_fusion(const Stage& first, const Stage& second, const Machine& machine) {
  if (machine.device.kind != DeviceKind::cuda)
    return {false, "two runs: only GPUs run two stages in one launch"};
  const gpu::PairVerdict pair = gpu::judge_pair(first, second, machine);
  if (!pair.refusals.empty())
    return {false, fmt::format("two launches: {}", fmt::join(pair.refusals, "; "))};
  PlanOptions options;
  options.device = machine.device;
  double apart = 0;
  std::string kernels;
  for (const Stage* stage : {&first, &second}) {
    const Selection selection = select(*stage, machine, options, nullptr);
    const std::string_view kernel = selection.kernel().name();
    if (kernel != "halo")
      return {false, fmt::format("two launches: {} runs in {} by itself, whose bits differ",
                                 stage == &first ? "the first stage" : "the second", kernel)};
    apart += selection.tile.cost.seconds;
    kernels += (kernels.empty() ? "" : ", ") + selection.tile.tile.name;
  }
  const bool fused = pair.seconds < apart;
  return {fused,
          fmt::format("{}: pair {} is predicted to take {:.1f} us, two launches of halo ({}) "
                      "{:.1f} us",
                      fused ? "one launch" : "two launches", pair.tile, pair.seconds * 1e6, kernels,
                      apart * 1e6)};
}

}  // namespace convoy
