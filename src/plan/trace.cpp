#include "plan/trace.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "convoy/error.hpp"
#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "core/gpu_timing.hpp"
#include "plan/bound.hpp"
#include "plan/operands.hpp"
#include "plan/timing.hpp"

namespace convoy {
namespace {

// The stage bound to a kernel, with operands of its own.
struct Traced {
  Bound bound;
  const Stage& stage;
  Shapes shapes;
  RandomOperands random;
  Tensor y, y_untraced;  // of the traced run, and of one on the same x

  Traced(const Stage& of, const PlanOptions& options)
      : bound(of.normalised(), options),
        stage(bound.chain().front()),
        shapes(shapes_of(stage)),
        random(stage, 1, bound.machine()),
        y(stage.output_dtype(bound.on_gpu()), y_shape(stage), bound.machine().device),
        y_untraced(y.clone()) {
    if (std::string why = bound.on_gpu() ? bound.why_no_trace() : std::string(); !why.empty())
      throw Unsupported(
          fmt::format("explain: there is no trace of {} by {} {} on {}: {}. Kernels with time "
                      "stamps: halo (f16, Hopper).",
                      to_text(stage), bound.kernel().name(), bound.selection().tile.tile.name,
                      to_text(bound.machine().device), why));
    const Parameters parameters{.w = random.weights.data<float>()};
    bound.set({&parameters, 1});
  }

  // Of set number `set`; `to`: another y than the set's.
  RunArgs args(std::size_t set, Tensor* to = nullptr) {
    Operands operands = random.operands(stage, set);
    if (to) operands.y = *to;
    RunArgs args;
    bind_operands(stage, shapes, bound.machine().device, operands, args).or_throw();
    return args;
  }
  void run(RunArgs args, Stream stream = {}) const { bound.run(args, nullptr, stream).or_throw(); }
};

RunTrace trace_on_cpu(Traced& traced, TracedStage& told) {
  Threads& threads = *traced.bound.threads();
  TaskLog log(threads.count());
  const RunArgs args = traced.args(0, &traced.y);
  threads.log_to(&log);
  const auto begin = TaskLog::Clock::now();
  RunArgs run = args;
  const Status status = traced.bound.run(run, nullptr, {});
  const auto end = TaskLog::Clock::now();
  threads.log_to(nullptr);
  status.or_throw();
  told.left_out = log.left_out();
  return trace_of(log, begin, end);
}

// The runs before are measured on the way: a GPU's clock depends on what it did last.
RunTrace trace_on_gpu(Traced& traced, double warm, TracedStage& told) {
  constexpr int least = 3, most = 20'000;
  const gpu::OwnedStream own(traced.bound.machine().device);
  const std::size_t sets = traced.random.sets(), last = sets - 1;
  const double seconds = std::max(traced.bound.selection().tile.cost.seconds, 1e-6);
  const int runs = static_cast<int>(std::clamp<double>(warm / seconds, least, most));
  std::vector<RunArgs> untraced;
  untraced.reserve(sets);
  for (std::size_t set = 0; set < sets; ++set) untraced.push_back(traced.args(set));
  std::array both{traced.args(last > 0 ? last - 1 : 0), traced.args(last, &traced.y)};
  RunTrace trace = traced.bound.trace(
      both,
      [&] {
        for (int i = 0; i < runs; ++i)
          traced.run(untraced[static_cast<std::size_t>(i) % sets], own.stream());
      },
      own.stream());
  if (warm > 0) {
    told.seconds = trace.before_seconds / runs;
    told.hertz = trace.before_hertz;
  }
  return trace;
}

void measure_on_cpu(Traced& traced, double seconds, TracedStage& told) {
  told.seconds =
      summary(sample_calls(
                  told.machine.device, 1,
                  [&](Stream, std::size_t set) { traced.run(traced.args(set)); }, seconds))
          .median;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor here = a.to({}), there = b.to({});
  return std::memcmp(here.data<char>(), there.data<char>(), here.bytes()) == 0;
}

}  // namespace

TracedStage trace_stage(const Stage& stage, const PlanOptions& options, double seconds) {
  Traced traced(stage, options);
  TracedStage told;
  told.stage = traced.stage;
  told.machine = running(traced.bound.machine(), traced.bound.selection());
  told.kernel = traced.bound.kernel().name();
  told.tile = traced.bound.selection().tile.tile.name;
  told.predicted = traced.bound.selection().tile.cost.seconds;
  const bool gpu = traced.bound.on_gpu();
  if (seconds > 0 && !gpu) measure_on_cpu(traced, seconds, told);
  // A GPU that idles in between would begin with another clock: the traced runs follow others.
  const std::size_t set = gpu ? traced.random.sets() - 1 : 0;
  traced.run(traced.args(set, &traced.y_untraced));  // on the CPU this also wakes the threads
  told.trace = gpu ? trace_on_gpu(traced, seconds, told) : trace_on_cpu(traced, told);
  told.same_bits = same_bits(traced.y, traced.y_untraced);
  return told;
}

}  // namespace convoy
