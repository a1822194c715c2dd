// Parity of one stage: every kernel and tile that fits it, judged by the oracle.
//
// (a) integers, bit for bit; (b) three kinds of real numbers, within twice the error of plain fp32;
// (c) outputs poisoned and fenced; (d) the same bits again, for other n, threads or streams, tiles
// and kernels of the same arithmetic; (e) views with gaps, with and without alignment, which a
// GPU's kernel may refuse.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "verify/compare.hpp"

namespace convoy::verify {

/// What checks add up.
struct Tally {
  Index runs = 0;
  Index outputs = 0;     // elements of y that were compared with the oracle
  Index refused = 0;     // runs on views with gaps that a kernel refused, with a reason
  double worst = 0;      // largest error of (b) as a multiple of the error of plain fp32
  std::string worst_at;  // of which stage and kernel
  SpikeCount spikes;
};

/// Above these the oracle computes samples only: corners, edges, seams and 20,000 random outputs.
/// Data with mean 10 or scaled channels is sampled from a twentieth of the multiply-adds on.
constexpr Index sample_above_macs = 2'000'000'000;
constexpr Index sample_above_outputs = 4'000'000;  // of the convolution

/// Threads of plans that must give the bits of one thread, besides two: more than the machine may
/// have, for they decide how work is divided. Of stages up to so many multiply-adds and elements.
constexpr int more_threads[] = {8, 32};
constexpr Index most_work_of_threads = 2'000'000;
/// Batches of 7 and 64 images are run where they take less than that.
constexpr Index most_work_of_batch = 100'000'000;

/// A chain, most often of one stage, by one kernel with one tile.
struct Check {
  OwnedChain chain;
  const Kernel* kernel = nullptr;
  Tile tile;
};

class StageParity {
 public:
  /// Throws Error when the stage is illegal.
  StageParity(const Stage& stage, std::uint64_t seed, Device device, Threads& threads);
  ~StageParity();

  /// Every way in which the kernel with this tile fails; empty when it passes.
  /// `thorough` off: (a), (b) with normal numbers, (c) and (e).
  std::vector<std::string> check(const Kernel& kernel, const Tile& tile, bool thorough,
                                 Tally& tally);

 private:
  struct Expected;
  const Expected* expected(Data data);
  Plan plan(const Kernel& kernel, const Tile& tile, Index n, int threads) const;
  std::string judge(const Expected& want, const Result& got, const Kernel& kernel, Tally& tally);
  std::string judge_real(const Expected& want, const Result& got, const Kernel& kernel,
                         Tally& tally);
  std::string judge_samples(const Expected& want, const Result& got, const Kernel& kernel,
                            Tally& tally) const;
  std::string judge_largest(std::string_view what, const Expected& want,
                            const std::vector<float>& got, const std::vector<double>& real,
                            const Kernel& kernel, Tally& tally) const;
  std::string check_repeats(const Kernel& kernel, const Tile& tile, const Plan& one,
                            const Plan* two, const Inputs& inputs, const Result& base,
                            Tally& tally);
  bool on_gpu() const { return device_.kind == DeviceKind::cuda; }

  Stage stage_;
  Shapes shapes_;
  std::uint64_t seed_;
  Device device_;
  Threads& threads_;
  Guard guard_, other_guard_;  // on two streams
  std::array<std::unique_ptr<Expected>, 4> expected_;
  // y of each arithmetic, from its first kernel
  std::map<std::string, std::vector<float>, std::less<>> bits_;
};

/// Kernels that may run the chain on the machine: they fit, and are exact where the chain asks.
std::vector<const Kernel*> fitting_kernels(const Chain& chain, const Machine& machine);

/// For plans of this kernel. A tile may be made for more images than the chain has: then the
/// planner's choice, of the same bits.
PlanOptions options_of(const Kernel& kernel, const Tile& tile, const Chain& chain, Device device,
                       int threads);

}  // namespace convoy::verify
