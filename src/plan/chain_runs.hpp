// The two ways of running a chain, on random operands, for timing: by one kernel, stage by stage.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernel.hpp"
#include "plan/bound.hpp"
#include "plan/timing.hpp"

namespace convoy {

class ChainRuns {
 public:
  /// Kernel and tile of `options` do not count. Throws Error where the chain is not legal, no
  /// kernel runs one of its stages, or memory runs out.
  ChainRuns(const Chain& chain, const PlanOptions& options);

  /// All of the chain by the kernel with that tile, the planner's choice where both are empty.
  std::unique_ptr<const Bound> bind(const std::string& kernel = {},
                                    const std::string& tile = {}) const;
  /// Runs what `bind` gave, for about `seconds`.
  Samples sample_whole(const Bound& bound, double seconds);
  /// Runs the stages by plans of their own. What lies around them in a network is left out: the
  /// conversion of pixels and the mean.
  Samples sample_stages(double seconds);
  /// All that one run of each way writes, for comparing bits.
  std::vector<std::byte> outputs_of_whole(const Bound& bound);
  std::vector<std::byte> outputs_of_stages();
  /// Of those plans the first arithmetic that is not this one; empty: all have it, read what the
  /// chain reads and write what it writes.
  std::string other_than(std::string_view arithmetic) const;
  /// What their cost models predict for those.
  double predicted_stages() const { return predicted_stages_; }

 private:
  std::vector<Parameters> parameters(const KernelFacts& facts) const;
  Status run_whole(const Bound& bound, void* workspace, Stream stream, std::size_t set);
  Status run_stages(Stream stream, std::size_t set);
  Samples sample(double seconds, const std::function<Status(Stream, std::size_t)>& run) const;
  Operands operands_of(std::size_t stage, std::size_t set) {
    return operands_[stage].operands(alone_[stage], set % operands_[stage].sets());
  }

  OwnedChain chain_;
  PlanOptions options_;
  Machine machine_;
  std::vector<Stage> alone_;
  std::vector<RandomOperands> operands_;
  std::vector<Plan> plans_;
  std::vector<Tensor> workspaces_;   // of those
  Tensor pixels_;                    // where the chain's constants give their values
  std::vector<float> values_;        // those, [C][256]
  std::vector<Tensor> folded_bias_;  // on the host
  Tensor labels_;
  double predicted_stages_ = 0;
  std::size_t sets_ = 1;
};

}  // namespace convoy
