#include "bench/runs.hpp"

#include <chrono>

#include "bench/check.hpp"
#include "bench/gpu_runs.hpp"
#include "core/measure.hpp"

namespace convoy::bench {
namespace {

class CpuRuns final : public Runs {
 public:
  CpuRuns(const Stage& stage, const Problem& problem, const PlanOptions& options)
      : Runs(Plan(stage, problem.w, options)), operands_(problem.operands) {
    error_ = checked_error(stage, operands_, problem.w, plan_, [&] { run(); });
  }
  std::vector<double> turn(double seconds) override {
    return time_runs([&] { run(); }, seconds);
  }
  double peak_flops() override { return measure_peak_flops(plan_.threads(), 0.002); }

 private:
  void run() { plan_.run(operands_).or_throw(); }
  Operands operands_;
};

}  // namespace

std::vector<double> time_runs(const std::function<void()>& run, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::vector<double> samples;
  run();
  const auto begin = Clock::now();
  double elapsed = 0;
  do {
    const auto start = Clock::now();
    run();
    samples.push_back(since(start));
    elapsed = since(begin);
  } while (elapsed < seconds || (samples.size() < 3 && elapsed < 4 * seconds));
  return samples;
}

std::unique_ptr<Runs> make_runs(const Stage& stage, const Problem& problem,
                                const PlanOptions& options, double seconds, bool apart) {
  if (options.device.kind == DeviceKind::cpu)
    return std::make_unique<CpuRuns>(stage, problem, options);
  return std::make_unique<GpuRuns>(stage, problem, options, seconds, apart);
}

}  // namespace convoy::bench
