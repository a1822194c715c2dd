// Parity of one chain: every kernel of several stages and every tile of it.
//
// (a) integers, and membranes exactly at thresholds, bit for bit, against the oracle run stage by
// stage; (b) real numbers: the bits of
// the stages by themselves, where they have the kernel's arithmetic, and what lies between, where
// the kernel gives it: each stage is judged by the oracle on what the kernel itself read there; (c)
// outputs and what lies between poisoned and fenced; (d) the same bits again, for other n and
// threads or streams.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "verify/guarded_chain.hpp"
#include "verify/parity.hpp"

namespace convoy::verify {

class ChainParity {
 public:
  /// Whether the oracle computes all of the (legal) chain in some seconds.
  static bool affordable(const Chain& chain);

  /// Throws Error when the chain is illegal, or not affordable.
  ChainParity(const Chain& chain, std::uint64_t seed, Device device, Threads& threads);

  /// As StageParity::check; `thorough` off: (a), (b) and (c).
  std::vector<std::string> check(const Kernel& kernel, const Tile& tile, bool thorough,
                                 Tally& tally);

 private:
  /// Inputs of exact sums, and y of each stage by the oracle; of a mean the last is that.
  struct Expected {
    ChainInputs inputs;
    std::vector<std::vector<double>> y;
  };
  /// Empty where a sum of some stage is not exact.
  std::optional<Expected> sum_exactly(ChainInputs inputs) const;
  bool is_spiking() const { return chain_.stages.front().act.is_neuron(); }
  /// Stage i as the oracle takes it, which read `x`.
  Inputs alone(const ChainInputs& inputs, std::size_t i, Tensor x) const;
  /// What stage i + 1 reads where stage i wrote `y`.
  template <class T>
  Tensor next_x(std::size_t i, const std::vector<T>& y) const;
  std::vector<double> mean_of(const std::vector<double>& y) const;

  std::unique_ptr<Bound> bind(const Kernel& kernel, const Tile& tile, Index n, int threads) const;
  std::string judge_labels(const ChainResult& got) const;
  std::string judge_exact(const Expected& want, const ChainResult& got, Tally& tally) const;
  std::string judge_real(const Kernel& kernel, const ChainInputs& inputs, const ChainResult& got,
                         Tally& tally);
  std::string judge_by_inner(const ChainInputs& inputs, const ChainResult& got, Tally& tally) const;
  std::vector<float> by_themselves(const std::vector<const Kernel*>& kernels,
                                   const ChainInputs& inputs) const;
  std::string check_repeats(const Kernel& kernel, const Tile& tile, const Bound& one,
                            const ChainInputs& inputs, const ChainResult& base, Tally& tally);
  bool on_gpu() const { return device_.kind == DeviceKind::cuda; }

  OwnedChain chain_;
  std::vector<Stage> stages_;  // as each is seen by itself
  std::uint64_t seed_;
  Device device_;
  Threads& threads_;
  ChainGuard guard_, other_guard_;  // on two streams
  std::optional<Expected> integers_, ties_;
  std::optional<ChainInputs> normal_;
  std::map<std::string, std::vector<float>, std::less<>> bits_;  // of each arithmetic, by stages
};

}  // namespace convoy::verify
