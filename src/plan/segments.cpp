#include "plan/segments.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "convoy/plan.hpp"
#include "plan/chain_runs.hpp"
#include "plan/parts.hpp"
#include "plan/tune_chain.hpp"

namespace convoy {
namespace {

// One stage by itself.
struct Single {
  std::string_view kernel, arithmetic;
  std::string tile;
  double seconds = 0, canonical_seconds = 0;
};

// Stages [first, first + count) by one kernel.
struct Candidate {
  std::size_t first = 0, count = 0;
  const Kernel* kernel = nullptr;
  std::string tile;
  bool own_arithmetic = false;
  bool measured = false;  // faster than the stages by themselves, `convoy tune` found
  double seconds = 0, canonical_seconds = 0;
};

std::string microseconds(double seconds) {
  return fmt::format("{:.1f} us", seconds * 1e6);
}

class Cutter {
 public:
  Cutter(const Chain& chain, const Machine& machine, const PlanOptions& options,
         std::span<const Kernel* const> kernels)
      : chain_(chain), machine_(machine), options_(options), kernels_(kernels) {
    options_.kernel.clear();
    options_.tile.clear();
    std::string warning;  // plans of the stages tell it
    if (options_.use_tuning) tuning_ = user_tuning_cache(warning);
    for (const Stage& stage : chain_.stages) singles_.push_back(single(stage));
    why_apart_.resize(chain_.size());
    for (std::size_t first = 0; first < chain_.size(); ++first)
      for (const Kernel* kernel : kernels_) consider(*kernel, first);
  }

  std::vector<Segment> run() const {
    // First the kernels with an arithmetic of their own, for the canonical n; then the rest.
    std::vector<const Candidate*> owners;
    for (const Step& step : shortest({}, true))
      if (step.candidate && step.candidate->own_arithmetic) owners.push_back(step.candidate);
    std::vector<Segment> segments;
    for (const auto& [first, candidate] : shortest(owners, false)) {
      if (candidate)
        segments.push_back({first, candidate->count, candidate->kernel, why_together(*candidate)});
      else
        segments.push_back({first, 1, nullptr, why_apart(first)});
    }
    return segments;
  }

 private:
  struct Step {
    std::size_t first = 0;
    const Candidate* candidate = nullptr;  // null: the stage by itself
  };

  Single single(const Stage& stage) const {
    const Selection selection = select(stage, machine_, options_, nullptr, kernels_);
    return {selection.kernel().name(), selection.kernel().arithmetic(), selection.tile.tile.name,
            selection.tile.cost.seconds, selection.verdict().canonical_seconds};
  }

  bool is_of_single_stages(std::string_view arithmetic) const {
    return std::any_of(kernels_.begin(), kernels_.end(), [&](const Kernel* kernel) {
      return kernel->device() == machine_.device.kind && !is_for_chains(*kernel) &&
             kernel->arithmetic() == arithmetic;
    });
  }

  Chain part(std::size_t first, std::size_t count) const {
    Chain part(chain_.stages.subspan(first, count));
    part.constants = chain_.constants;
    part.binary = first == 0 ? chain_.binary : chain_[first - 1].act.is_neuron();
    part.x_steps = chain_.x_steps;
    for (std::size_t i = 0; i < first; ++i)
      if (chain_[i].act.is_neuron()) part.x_steps = chain_[i].t;
    part.mean = chain_.mean && first + count == chain_.size();
    return part;
  }

  void consider(const Kernel& kernel, std::size_t first) {
    const KernelFacts& facts = kernel.facts();
    if (!is_for_chains(kernel) || facts.by_name_only || kernel.device() != machine_.device.kind ||
        (facts.folds && !chain_.constants))
      return;
    const std::size_t most = std::min(chain_.size() - first, most_stages);
    for (std::size_t count = facts.least_stages; count <= most; ++count) {
      const Chain chain = part(first, count);
      const std::vector<std::string> refusals = refusals_of_an_image(kernel, chain, machine_);
      if (!refusals.empty()) {
        if (count == facts.least_stages && why_apart_[first].empty() && count > 1)
          why_apart_[first] = fmt::format("{}", fmt::join(refusals, "; "));
        continue;
      }
      if (chain.exact() && !kernel.exact()) continue;
      add(kernel, first, count, chain);
    }
  }

  void add(const Kernel& kernel, std::size_t first, std::size_t count, const Chain& chain) {
    Candidate candidate{first, count, &kernel, {}, false, false, 0, 0};
    candidate.own_arithmetic = !is_of_single_stages(kernel.arithmetic());
    for (std::size_t i = first; i < first + count && !candidate.own_arithmetic; ++i) {
      if (singles_[i].arithmetic == kernel.arithmetic()) continue;
      why_apart_[first] = fmt::format("stage {} runs in {} by itself, whose bits differ",
                                      i - first + 1, singles_[i].kernel);
      return;
    }
    const RankedTile best = rank(kernel, chain, machine_).front();
    candidate.tile = best.tile.name;
    candidate.seconds = best.cost.seconds;
    Machine one_thread = machine_;
    if (machine_.device.kind == DeviceKind::cpu) one_thread = with_threads(machine_, 1);
    candidate.canonical_seconds =
        rank(kernel, canonical_chain(chain, machine_.device.kind), one_thread).front().cost.seconds;
    if (obey_tuning(chain, candidate)) candidates_.push_back(candidate);
  }

  // What was measured decides between ways of the same bits; false: the stages by themselves.
  bool obey_tuning(const Chain& chain, Candidate& candidate) {
    const TunedTile* row = tuning_ ? tuning_->find(machine_, chain) : nullptr;
    if (row == nullptr || candidate.own_arithmetic) return true;
    if (row->kernel == stages_by_themselves) {
      why_apart_[candidate.first] =
          fmt::format("`convoy tune` measured the {} stages by themselves as the fastest, {}",
                      candidate.count, microseconds(row->seconds));
      return false;
    }
    if (row->kernel != candidate.kernel->name()) return true;
    double apart = 0;
    for (std::size_t i = 0; i < candidate.count; ++i)
      apart += singles_[candidate.first + i].seconds;
    // Less than by themselves, whatever is predicted.
    candidate.seconds = std::min(candidate.seconds, 0.99 * apart);
    candidate.measured = true;
    return true;
  }

  // The fastest cut: segments in order. With `owners`, those candidates are taken and no other of
  // an arithmetic of its own.
  std::vector<Step> shortest(const std::vector<const Candidate*>& owners, bool canonical) const {
    const std::size_t size = chain_.size();
    constexpr double never = std::numeric_limits<double>::infinity();
    std::vector<double> best(size + 1, never);
    std::vector<Step> last(size + 1);
    const auto inside = [&](std::size_t i) {
      return std::any_of(owners.begin(), owners.end(), [&](const Candidate* owner) {
        return i >= owner->first && i < owner->first + owner->count;
      });
    };
    const auto offer = [&](std::size_t first, std::size_t end, double seconds,
                           const Candidate* candidate) {
      if (best[first] + seconds > best[end]) return;
      best[end] = best[first] + seconds;
      last[end] = {first, candidate};
    };
    best[0] = 0;
    for (std::size_t i = 0; i < size; ++i) {
      if (best[i] == never) continue;
      if (canonical || !inside(i))
        offer(i, i + 1, canonical ? singles_[i].canonical_seconds : singles_[i].seconds, nullptr);
      for (const Candidate& candidate : candidates_) {
        if (candidate.first != i) continue;
        const bool owner = std::find(owners.begin(), owners.end(), &candidate) != owners.end();
        bool allowed = canonical || owner || !candidate.own_arithmetic;
        for (std::size_t j = i; j < i + candidate.count && allowed && !canonical && !owner; ++j)
          allowed = !inside(j);
        if (allowed)
          offer(i, i + candidate.count, canonical ? candidate.canonical_seconds : candidate.seconds,
                &candidate);
      }
    }
    std::vector<Step> steps;
    for (std::size_t end = size; end > 0; end = last[end].first) steps.push_back(last[end]);
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  // "the 2 stages by themselves 31.0 us (halo 8x8x1.rows, halo line64.rows)"
  std::string apart_text(const Candidate& candidate) const {
    double sum = 0;
    std::vector<std::string> names;
    for (std::size_t i = candidate.first; i < candidate.first + candidate.count; ++i) {
      sum += singles_[i].seconds;
      names.push_back(fmt::format("{} {}", singles_[i].kernel, singles_[i].tile));
    }
    return fmt::format(
        "{} by {} {} ({})",
        candidate.count == 1 ? "the stage" : fmt::format("the {} stages", candidate.count),
        candidate.count == 1 ? "itself" : "themselves", microseconds(sum), fmt::join(names, ", "));
  }
  std::string together_text(const Candidate& candidate) const {
    return fmt::format("{} ({}) {}", candidate.kernel->name(), candidate.tile,
                       microseconds(candidate.seconds));
  }
  std::string why_together(const Candidate& candidate) const {
    if (candidate.measured)
      return fmt::format("in one kernel: {}, measured by `convoy tune` to be faster than {}",
                         candidate.kernel->name(), apart_text(candidate));
    return fmt::format("in one kernel: predicted {}, {}", together_text(candidate),
                       apart_text(candidate));
  }
  std::string why_apart(std::size_t first) const {
    if (first + 1 == chain_.size()) return {};
    for (const Candidate& candidate : candidates_)
      if (candidate.first == first && candidate.count > 1)
        return fmt::format("by itself: predicted {}, {}", apart_text(candidate),
                           together_text(candidate));
    return why_apart_[first].empty() ? "" : "by itself: " + why_apart_[first];
  }

  Chain chain_;
  Machine machine_;
  PlanOptions options_;
  std::span<const Kernel* const> kernels_;
  std::shared_ptr<const TuningCache> tuning_;
  std::vector<Single> singles_;
  std::vector<Candidate> candidates_;
  std::vector<std::string> why_apart_;  // from the next stage
};

}  // namespace

std::vector<Segment> cut(const Chain& chain, const Machine& machine, const PlanOptions& options,
                         std::span<const Kernel* const> kernels) {
  check(chain, machine.device.kind == DeviceKind::cuda);
  return Cutter(chain, machine, options, kernels).run();
}

SegmentTimes measure_segments(const Chain& chain, const PlanOptions& options, double seconds) {
  ChainRuns runs(chain, options);
  return {summary(runs.sample_whole(*runs.bind(), seconds)).median,
          summary(runs.sample_stages(seconds)).median};
}

}  // namespace convoy
