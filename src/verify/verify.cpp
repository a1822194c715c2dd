#include "verify/verify.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <optional>

#include "plan/kernel_table.hpp"
#include "plan/select.hpp"
#include "plan/timing.hpp"
#include "verify/chain_parity.hpp"
#include "verify/large.hpp"
#include "verify/non_finite.hpp"

namespace convoy::verify {
namespace {

// One chain and what is to be checked of it.
struct Job {
  OwnedChain chain;
  std::vector<Check> checks;
  bool thorough = true;
  bool non_finite = false;

  /// Of its runs, roughly: an element is fetched, fenced and compared in the time of some tens of
  /// multiply-adds.
  Index work() const {
    Index work = 0;
    for (const Stage& stage : chain.stages) {
      const Shapes shapes = shapes_of(stage);
      work += shapes.macs + 50 * (shapes.x_elements + shapes.pre_elements);
    }
    return static_cast<Index>(checks.size()) * work;
  }
};

// Small enough for 144 runs, large enough for a whole 6x6 tile inside.
constexpr const char* non_finite_stages[] = {
    "n1h12c64k16r3pad1",
    "n1h12c64k16r3pad1+bias+relu+max2",
    "n1h11c19k5r3pad1+strict+max2",
    "n1h12c4k16r3pad1+bias+relu+max2",
    "n1h12c16k3r3pad1+leaky(0.1)+max2",
    "n1h10c4k8r5+clip(0,1)",
    "n1h12c1k8r5+bias+relu+max2",
    "n1h12c64k16r3pad1+relu6",
    "n1h12c16k24r3pad1+relu+max3s2p1",
    "n1h10c16k16r1+relu6+max2",
    "n1h12c16k16r3pad1groups16+relu",
};

// What draws meet once in thousands, and what some kernel once got wrong.
constexpr const char* rare_stages[] = {
    "n1h1w1c16k2r1+bias+leaky(0)+max3p0x1d1x2ceil+strict",  // windows of padding alone
    "n2h1w19c48k64r3pad1+relu+max2x3p1d2x1",
    "n1h12w1c29k4r3pad1+relu6+max4x3s1x4p1d2ceil",
    "n3h1w1c13k2r1stride2+bias",  // a linear layer with a stride
    "n16h1w1c33k40r1+bias+if(0.5)+t3+soft+keep(pre,act)",
    "n2h9w7c6k6r3groups6pad2dil3+norm+bias",  // padding that reaches far outside
    "f16:n1h8c3k4r3pad1+max3s1p1+keep(idx)",  // ties after rounding
};

class Driver {
 public:
  explicit Driver(const VerifyOptions& options) : options_(options) {
    PlanOptions plan;
    plan.device = options.device;
    machine_ = machine_for(plan);
    if (!options.kernel.empty() && !find_kernel(options.kernel, options.device.kind)) {
      std::vector<std::string_view> names;
      for (const Kernel* kernel : kernel_table())
        if (kernel->device() == options.device.kind) names.push_back(kernel->name());
      throw Error(
          fmt::format("kernel \"{}\": expected one of {}", options.kernel, fmt::join(names, ", ")));
    }
  }

  Report run() {
    const auto start = std::chrono::steady_clock::now();
    plan_jobs();
    Threads threads(default_threads());
    // Stages side by side; what one of them does stays on its own thread, but for plans of two. The
    // largest begin first, so that no thread is left alone with one at the end.
    std::stable_sort(jobs_.begin(), jobs_.end(),
                     [](const Job& a, const Job& b) { return a.work() > b.work(); });
    std::atomic<std::size_t> next = 0;
    threads.for_each(static_cast<Index>(jobs_.size()), [&](Index, int) {
      const Job& job = jobs_[next++];
      try {
        run_job(job);
      } catch (const std::bad_alloc&) {
        add_failure(job, {}, "no memory for its tensors. Use a smaller n or smaller images.");
      } catch (const std::exception& error) {
        add_failure(job, {}, error.what());
      }
    });
    run_large();  // by themselves: each takes a large part of the GPU's memory
    std::sort(report_.failures.begin(), report_.failures.end(),
              [](const Failure& a, const Failure& b) { return a.repro < b.repro; });
    report_.stages = std::count_if(jobs_.begin(), jobs_.end(),
                                   [](const Job& job) { return is_one_stage(job.chain); });
    report_.chains = static_cast<Index>(jobs_.size()) - report_.stages;
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  std::vector<Check> checks_of(const OwnedChain& chain) const {
    std::vector<Check> checks;
    for (const Kernel* kernel : fitting_kernels(chain, machine_)) {
      if (!options_.kernel.empty() && kernel->name() != options_.kernel) continue;
      for (const Tile& tile : kernel->tiles(chain, machine_))
        if (options_.tile.empty() || tile.name == options_.tile)
          checks.push_back({chain, kernel, tile});
    }
    return checks;
  }

  void plan_jobs() {
    for (const OwnedChain& chain : options_.stages) {
      if (is_large(chain)) {
        PlanOptions plan;
        plan.device = options_.device;
        plan.kernel = options_.kernel;
        plan.use_tuning = false;
        const Stage& stage = chain.stages.front();
        large_.push_back(
            {stage.normalised(), &select(stage, machine_, plan, nullptr).kernel(), "asked for"});
        continue;
      }
      Job job{chain, checks_of(chain), true, options_.non_finite && is_one_stage(chain)};
      // A forced kernel that refuses says why; nothing is passed over in silence.
      if (job.checks.empty()) {
        PlanOptions plan;
        plan.device = options_.device;
        plan.kernel = options_.kernel;
        plan.tile = options_.tile;
        select(chain, machine_, plan, nullptr);
      }
      jobs_.push_back(std::move(job));
    }
    if (options_.random > 0) draw_jobs();
    if (jobs_.empty() && large_.empty()) throw Error(why_nothing());
    for (const Job& job : jobs_)
      for (const Check& check : job.checks) count(check, report_.coverage);
  }

  void draw_jobs() {
    Random random(options_.seed);
    const DeviceKind device = options_.device.kind;
    for (Index i = 0; i < options_.random; ++i) add_job(draw_any(random, i), false);
    // A few sizes near what kernels count in 32 bits: one for each 250 drawn stages.
    if (device == DeviceKind::cuda && machine_.memory_bytes > 0) {
      Random of_large(options_.seed);
      large_ = draw_large(of_large, machine_, options_.random / 250, options_.kernel,
                          0.8 * static_cast<double>(machine_.memory_bytes));
    }
    for (const char* text : rare_stages) add_job(parse_stage(text), false);
    for (const char* text : non_finite_stages) {
      Stage stage = parse_stage(text);
      add_job(stage, true);
      if (device == DeviceKind::cpu) continue;
      for (const DType type : {DType::f16, DType::bf16}) {
        stage.dtype = type;
        add_job(stage, true);
      }
    }
    if (options_.fill == 0) return;
    report_.least = options_.fill;
    // Of one kernel alone: what it refuses can't be drawn for it.
    if (options_.kernel.empty()) {
      std::vector<Stage> stages;
      for (const Job& job : jobs_)
        if (is_one_stage(job.chain)) stages.push_back(job.chain.stages.front());
      for (const Stage& stage : fill_fields(stages, report_.least, device, random, report_.fields))
        add_job(stage, false);
    }
    std::vector<Check> planned;
    for (const Job& job : jobs_)
      planned.insert(planned.end(), job.checks.begin(), job.checks.end());
    for (const Check& check :
         fill_coverage(planned, report_.least, machine_, options_.kernel, random))
      if (options_.tile.empty() || check.tile.name == options_.tile)
        jobs_.push_back({check.chain, {check}, false});
  }

  // On a GPU: what takes minutes, or more memory than there is, as one stage of many images.
  bool is_large(const OwnedChain& chain) const {
    return options_.device.kind == DeviceKind::cuda && is_one_stage(chain) &&
           bytes_of_operands(chain.stages.front()) > large_bytes;
  }
  void run_large() {
    for (const LargeRun& run : large_) {
      const LargeResult result = check_large(run, options_.seed, machine_);
      std::string line =
          fmt::format("{} by {} ({}): ", to_text(run.stage), run.kernel->name(), run.why);
      if (!result.skipped.empty())
        line += "skipped, " + result.skipped;
      else
        line += fmt::format("{} images compared with each alone, {} part{}{}", result.images,
                            result.parts, result.parts == 1 ? "" : "s",
                            result.failure.empty() ? "" : ", FAILED");
      report_.large.push_back(line);
      if (result.failure.empty()) continue;
      const Job job{run.stage, {}};
      add_failure(job, {run.stage, run.kernel, {}}, result.failure);
    }
  }

  // Every tenth is a chain of several stages; all or none of them where one kernel is asked for.
  OwnedChain draw_any(Random& random, Index i) const {
    const DeviceKind device = options_.device.kind;
    const Kernel* kernel = find_kernel(options_.kernel, device);
    if (kernel ? is_for_chains(*kernel) : i % 10 == 9) return draw_chain(random, device);
    return draw_stage(random, device);
  }

  // A drawn chain, unless nothing that was asked for fits it.
  void add_job(const OwnedChain& chain, bool non_finite) {
    Job job{chain, checks_of(chain), true, non_finite};
    if (!job.checks.empty()) jobs_.push_back(std::move(job));
  }

  // What keeps a kernel from every drawn stage is a matter of this machine.
  std::string why_nothing() const {
    if (options_.random == 0)
      return "verify: found no stage, neither given nor drawn, expected at least one. Give stages, "
             "or draw some with --random.";
    const Kernel* kernel = find_kernel(options_.kernel, options_.device.kind);
    std::vector<std::string> always;
    Random random(options_.seed);
    for (Index i = 0; kernel && i < options_.random; ++i) {
      const auto reasons = kernel->refusals(draw_any(random, i), machine_);
      if (i == 0) always = reasons;
      std::erase_if(always, [&](const std::string& reason) {
        return std::find(reasons.begin(), reasons.end(), reason) == reasons.end();
      });
    }
    return fmt::format(
        "verify: no drawn stage fits {}{}{}{}. Draw more stages, or do not name the kernel or "
        "tile.",
        kernel ? "kernel " + options_.kernel : "a kernel",
        options_.tile.empty() ? "" : " with tile " + options_.tile,
        always.empty() ? "" : " on this machine: ", fmt::join(always, "; "));
  }

  void run_job(const Job& job) {
    Threads inline_threads(1);
    Tally tally;
    std::optional<StageParity> stage;
    std::optional<ChainParity> chain;
    if (is_one_stage(job.chain))
      stage.emplace(job.chain.stages.front(), options_.seed, options_.device, inline_threads);
    else
      chain.emplace(job.chain, options_.seed, options_.device, inline_threads);
    Index number = 0;
    for (const Check& check : job.checks) {
      // Of a kernel with dozens of tiles, each takes some of the positions.
      const auto tiles =
          std::count_if(job.checks.begin(), job.checks.end(),
                        [&](const Check& other) { return other.kernel == check.kernel; });
      const Index parts = tiles > 16 ? 6 : 1;
      std::vector<std::string> failures;
      try {
        failures = stage ? stage->check(*check.kernel, check.tile, job.thorough, tally)
                         : chain->check(*check.kernel, check.tile, job.thorough, tally);
        if (job.non_finite) {
          const auto more =
              check_non_finite(job.chain.stages.front(), options_.seed, check, options_.device,
                               inline_threads, tally, number++ % parts, parts);
          failures.insert(failures.end(), more.begin(), more.end());
        }
      } catch (const Error& error) {
        failures.emplace_back(error.what());
      }
      for (const std::string& what : failures) add_failure(job, check, what);
    }
    const std::lock_guard lock(mutex_);
    Tally& sum = report_.tally;
    sum.runs += tally.runs;
    sum.outputs += tally.outputs;
    sum.refused += tally.refused;
    sum.spikes.spikes += tally.spikes.spikes;
    sum.spikes.excused += tally.spikes.excused;
    if (tally.worst > sum.worst) {
      sum.worst = tally.worst;
      sum.worst_at = tally.worst_at;
    }
    report_.checks += static_cast<Index>(job.checks.size());
    ++done_;
    if (options_.progress)
      options_.progress(done_, static_cast<Index>(jobs_.size()),
                        static_cast<Index>(report_.failures.size()));
  }

  void add_failure(const Job& job, const Check& check, const std::string& what) {
    Failure failure{job.chain, {}, check.tile.name, what, {}};
    failure.repro =
        fmt::format("convoy verify --stage '{}' --seed {}", to_text(job.chain), options_.seed);
    if (check.kernel) {
      failure.kernel = check.kernel->name();
      failure.repro += " --kernel " + failure.kernel;
      if (!check.tile.name.empty()) failure.repro += fmt::format(" --tile '{}'", check.tile.name);
    }
    if (options_.device.kind != DeviceKind::cpu)
      failure.repro += " --device " + convoy::to_text(options_.device);
    if (job.non_finite) failure.repro += " --non-finite";
    const std::lock_guard lock(mutex_);
    report_.failures.push_back(std::move(failure));
  }

  const VerifyOptions& options_;
  Machine machine_;
  std::vector<Job> jobs_;
  std::vector<LargeRun> large_;
  std::mutex mutex_;
  Index done_ = 0;
  Report report_;
};

}  // namespace

std::vector<Cell> Report::gaps() const {
  std::vector<Cell> gaps;
  for (const auto& [cell, count] : coverage)
    if (count < least) gaps.push_back(cell);
  return gaps;
}

std::vector<std::string> Report::field_gaps() const {
  std::vector<std::string> gaps;
  for (const auto& [pair, count] : fields)
    if (count < least)
      gaps.push_back(fmt::format(
          "{} with {}: {} of {}", verify::fields()[static_cast<std::size_t>(pair.first)].name,
          verify::fields()[static_cast<std::size_t>(pair.second)].name, count, least));
  return gaps;
}

Report verify(const VerifyOptions& options) {
  return Driver(options).run();
}

}  // namespace convoy::verify
