#include "plan/fusion.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/gpu.hpp"
#include "plan/select.hpp"
#include "plan/timing.hpp"

namespace convoy {

Fusion judge_fusion(const Stage& first, const Stage& second, const Machine& machine) {
  if (machine.device.kind != DeviceKind::cuda)
    return {.why = "two runs: only GPUs run two stages in one launch"};
  const gpu::PairVerdict pair = gpu::judge_pair(first, second, machine);
  if (!pair.refusals.empty())
    return {.why = fmt::format("two launches: {}", fmt::join(pair.refusals, "; "))};
  PlanOptions options;
  options.device = machine.device;
  double apart = 0;
  std::string kernels;
  for (const Stage* stage : {&first, &second}) {
    const Selection selection = select(*stage, machine, options, nullptr);
    const std::string_view kernel = selection.kernel().name();
    if (kernel != "halo")
      return {.why = fmt::format("two launches: {} runs in {} by itself, whose bits differ",
                                 stage == &first ? "the first stage" : "the second", kernel)};
    apart += selection.tile.cost.seconds;
    kernels += (kernels.empty() ? "" : ", ") + selection.tile.tile.name;
  }
  const bool fused = pair.seconds < apart;
  return {true, fused,
          fmt::format("{}: pair {} is predicted to take {:.1f} us, two launches of halo ({}) "
                      "{:.1f} us",
                      fused ? "one launch" : "two launches", pair.tile, pair.seconds * 1e6, kernels,
                      apart * 1e6)};
}

FusionTimes measure_fusion(const Stage& first, const Stage& second, const Machine& machine,
                           double seconds) {
  const RandomOperands a(first, 1, machine), b(second, 2, machine);
  PlanOptions options;
  options.device = machine.device;
  options.kernel = "halo";
  options.use_tuning = false;
  const Plan plan(first, a.weights, options), plan2(second, b.weights, options);
  const auto pair = gpu::prepare_pair(first, second, machine);
  pair->set_weights(a.weights.data<float>(), b.weights.data<float>());

  const std::size_t runs = std::max({least_replayed_runs, a.sets(), b.sets()});
  const auto time = [&](const auto& run) {
    const auto enqueue = [&](Stream stream) {
      for (std::size_t i = 0; i < runs; ++i) {
        const Operands of_first = a.operands(first, i % a.sets());
        Operands of_second = b.operands(second, i % b.sets());
        of_second.x = of_first.y;
        run(of_first, of_second, stream).or_throw();
      }
    };
    return time_replays(machine.device, runs, enqueue, seconds).median;
  };
  FusionTimes times;
  times.one_launch = time([&](const Operands& in, const Operands& out, Stream stream) {
    return pair->run(first.n, in.x.data, static_cast<const float*>(in.bias.data),
                     static_cast<const float*>(out.bias.data), out.y.data, stream);
  });
  times.two_launches = time([&](const Operands& in, const Operands& out, Stream stream) {
    const Status status = plan.run(in, stream);
    return status.ok() ? plan2.run(out, stream) : status;
  });
  return times;
}

}  // namespace convoy
