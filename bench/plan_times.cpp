#include "bench/plan_times.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "bench/statistics.hpp"

namespace convoy::bench {
namespace {

// Of five, or of as many as fit into a tenth of a second.
double median_seconds(const std::function<void()>& before, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  double spent = 0;
  do {
    before();
    const auto begin = Clock::now();
    work();
    samples.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    spent += samples.back();
  } while (samples.size() < 5 && spent < 0.1);
  return median(samples);
}

}  // namespace

PlanTimes time_plan(const Stage& stage, const ConstTensorView& w, const PlanOptions& options) {
  std::optional<Plan> plan;
  PlanTimes times;
  times.plan = median_seconds([&] { plan.reset(); }, [&] { plan.emplace(stage, options); });
  times.pack = median_seconds([] {}, [&] { plan->set_weights(w); });
  return times;
}

}  // namespace convoy::bench
