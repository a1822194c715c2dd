// The ladder's kernels as the planner sees them: each runs by name only.
#include <fmt/core.h>

#include <optional>

#include "cuda/error.hpp"
#include "cuda/family.hpp"
#include "teaching/families.hpp"
#include "teaching/ladder/ladder.hpp"

namespace convoy::cuda::teaching {
namespace {

// Taps r, then s, then 16 channels at once: of every rung with Tensor Cores.
constexpr std::string_view squares_of_16 = "squares of 16", one_by_one = "sequential";
constexpr std::string_view last = "ladder_9_bounds";

/// What docs/learn/ladder.md says of each; factors as the source document claims them.
constexpr Rung scalar_rung{.adds = "nothing: a thread an output, scalar multiply-adds"},
    wmma_rung{.adds = "Tensor Cores (WMMA), on a matrix made by im2col",
              .claimed = 8,
              .without_kernel = "ladder_fma"},
    implicit_rung{.adds = "implicit GEMM",
                  .claimed = 1.5,
                  .without_kernel = last,
                  .without_tile = "without implicit GEMM"},
    shared_rung{.adds = "tiles in shared memory",
                .claimed = 3,
                .without_kernel = last,
                .without_tile = "without sharing"},
    buffered_rung{.adds = "double buffering",
                  .claimed = 1.5,
                  .without_kernel = last,
                  .without_tile = "without double buffering"},
    vector_rung{.adds = "16-byte loads",
                .claimed = 2,
                .without_kernel = last,
                .without_tile = "without 16-byte loads"},
    masks_rung{
        .adds = "predication by masks", .without_kernel = last, .without_tile = "without masks"},
    registers_rung{
        .adds = "register tiles", .without_kernel = last, .without_tile = "without register tiles"},
    fused_rung{.adds = "fused bias and ReLU, all outputs at once",
               .claimed = 2,
               .without_kernel = last,
               .without_tile = "without fusing"},
    bounds_rung{
        .adds = "launch bounds", .without_kernel = last, .without_tile = "without launch bounds"},
    half_rung{.adds = "sums in fp16"};

/// Of half: relative to plain fp32 sums, whose own error is mostly that of rounding y to f16.
/// docs/learn/ladder.md has what was measured.
constexpr double half_error_bound = 64;

KernelFacts rung_facts(std::string_view name, const Rung* rung) {
  return {.name = name,
          .arithmetic = squares_of_16,
          .device = DeviceKind::cuda,
          .serves = served_by_ladder,
          .exact = true,
          .by_name_only = true,
          .rung = rung};
}
KernelFacts sequential(KernelFacts facts) {
  facts.arithmetic = one_by_one;
  return facts;
}
KernelFacts in_half(KernelFacts facts) {
  facts.arithmetic = "squares of 16, sums in fp16";
  facts.exact = false;
  facts.error_bound = half_error_bound;
  facts.sum_roundoff = 0x1p-11;
  return facts;
}

class PreparedLadder final : public Prepared {
 public:
  PreparedLadder(std::string_view name, LadderRung rung, const Stage& stage, const Tile& tile,
                 const Machine& machine)
      : name_(name), stage_(stage), device_(machine.device.index) {
    const OnDevice on(device_);
    launch_.emplace(stage, rung, static_cast<LadderWithout>(tile.a));
  }

  std::string packing() const override {
    return fmt::format("k{}r{}s{}c{}", stage_.k, stage_.r, stage_.s, stage_.c);
  }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    return pack_rounded(stage_, laid_out(0, all.front().w), device_);
  }
  std::vector<float> laid_out(std::size_t, const float* w) const override {
    return ladder_weights(stage_, w);
  }
  void use(std::shared_ptr<const PackedWeights> weights) override {
    weights_ = std::static_pointer_cast<const DeviceWeights>(std::move(weights));
  }
  std::size_t workspace_bytes() const override { return launch_->workspace_bytes(); }
  std::vector<GpuResources> gpu_resources() const override {
    const OnDevice on(device_);
    return launch_->resources();
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    if (launch_->wide_x()) {
      Status status = check_16_bytes(name_, "x", args.x, args.x_stride.w, stage_.dtype);
      if (!status.ok()) return status;
    }
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    return launch_status(launch_->run(args, weights_->memory.data(), stream_of(args)));
  }

 private:
  std::string_view name_;
  Stage stage_;
  int device_;
  std::shared_ptr<const DeviceWeights> weights_;
  std::optional<LadderLaunch> launch_;
};

class Ladder final : public StageKernel {
 public:
  /// `share`: of the Tensor Cores' peak that it reaches, bench/results/h200/ladder.json.
  Ladder(LadderRung rung, const KernelFacts& facts, double share)
      : StageKernel(facts), rung_(rung), share_(share) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    refuse_ladder(rung_, stage, why);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine&) const override {
    std::vector<Tile> tiles;
    for (const LadderWithout without : ladder_withouts(rung_, stage))
      tiles.push_back({std::string(to_text(without)), static_cast<int>(without)});
    return tiles;
  }
  // The tiles are there to be compared, not to be chosen from: the whole one is first of equals.
  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const double flops = 2.0 * static_cast<double>(shapes_of(stage).macs);
    return cost_of(stage, launch_seconds + flops / (share_ * machine.tensor_flops), 0);
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<PreparedLadder>(name(), rung_, stage, tile, machine);
  }

 private:
  static constexpr double launch_seconds = 5e-6;
  LadderRung rung_;
  double share_;
};

}  // namespace

const Kernel& ladder(std::size_t number) {
  using enum LadderRung;
  static const Ladder rungs[] = {
      {scalar, sequential(rung_facts("ladder_0_scalar", &scalar_rung)), 0.0006},
      {wmma, rung_facts("ladder_1_wmma", &wmma_rung), 0.018},
      {implicit_gemm, rung_facts("ladder_2_implicit", &implicit_rung), 0.006},
      {shared, rung_facts("ladder_3_shared", &shared_rung), 0.022},
      {buffered, rung_facts("ladder_4_buffered", &buffered_rung), 0.023},
      {vector, rung_facts("ladder_5_vector", &vector_rung), 0.07},
      {masks, rung_facts("ladder_6_masks", &masks_rung), 0.08},
      {registers, rung_facts("ladder_7_registers", &registers_rung), 0.15},
      {fused, rung_facts("ladder_8_fused", &fused_rung), 0.17},
      {bounds, rung_facts("ladder_9_bounds", &bounds_rung), 0.16},
      {half, in_half(rung_facts("ladder_10_half", &half_rung)), 0.17},
      {fma, sequential(rung_facts("ladder_fma", nullptr)), 0.03}};
  return rungs[number];
}

}  // namespace convoy::cuda::teaching
