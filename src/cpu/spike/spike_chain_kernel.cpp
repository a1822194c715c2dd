// `spike_chain` as the planner sees it.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <utility>

#include "core/assume.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/spike/spike_chain.hpp"

namespace convoy::cpu {
namespace {

using Clock = std::chrono::steady_clock;

std::int32_t arg_max(const float* values, Index count) {
  return static_cast<std::int32_t>(std::max_element(values, values + count) - values);
}

class PreparedSpikeChain final : public Prepared {
 public:
  PreparedSpikeChain(const Chain& chain, const Machine& machine)
      : plan_(chain), threads_(machine.threads), packing_(to_text(with_images(chain, 1))) {}

  std::string packing() const override { return packing_; }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    return std::make_shared<SpikeTables>(plan_, all);
  }
  void use(std::shared_ptr<const PackedWeights> weights) override {
    tables_ = std::static_pointer_cast<const SpikeTables>(std::move(weights));
  }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>((plan_.scratch_bytes() * threads_).value());
  }

  Status run(const RunArgs& args) const noexcept override {
    CONVOY_ASSUME(args.threads->count() <= threads_);
    const Index n = args.n, threads = args.threads->count();
    // Small batches are spread over the threads rather than filling one thread's block.
    const Index block = std::clamp<Index>((n + threads - 1) / threads, 1, SpikePlan::block);
    const Index tasks = (n + block - 1) / block;
    const auto bytes = plan_.scratch_bytes().value();
    std::array<bool, most_threads> cleared;  // of each slot
    std::fill_n(cleared.begin(), threads, false);
    args.threads->for_each(tasks, [&](Index task, int slot) {
      const Room room{args.workspace + slot * bytes, block};
      bool& is_clear = cleared[static_cast<std::size_t>(slot)];
      if (!std::exchange(is_clear, true)) clear(room);
      run_block(args, task * block, std::min(block, n - task * block), room);
    });
    return {};
  }

 private:
  // What one thread works in, with room for so many images.
  struct Room {
    std::byte* at;
    Index block;
    std::byte* operator+(std::size_t bytes) const { return at + bytes; }
  };

  SpikeBlock bits(const Room& scratch, std::size_t boundary) const {
    return {reinterpret_cast<std::uint8_t*>(scratch + plan_.scratch().bits[boundary]),
            scratch.block * plan_.layout(boundary).image_bytes()};
  }

  // Borders are 0 and stay so.
  void clear(const Room& scratch) const {
    for (std::size_t i = plan_.reads_images() ? 1 : 0; i < plan_.size() + (plan_.mean() ? 0 : 1);
         ++i) {
      const SpikeBlock block = bits(scratch, i);
      std::fill_n(block.data, plan_.steps() * block.step, std::uint8_t{0});
    }
  }

  // Images [first, first + count).
  void run_block(const RunArgs& args, Index first, Index count, const Room& scratch) const {
    if (!plan_.reads_images()) {
      const Stage& stage = plan_.stage(0);
      const Index image = stage.h * stage.w * stage.c;
      pack_spikes(plan_.layout(0), plan_.steps(), count,
                  static_cast<const float*>(args.x) + first * image, args.n * image,
                  bits(scratch, 0));
    }
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      const auto begin = args.seconds ? Clock::now() : Clock::time_point();
      run_layer(args, i, first, count, scratch);
      if (args.seconds)
        std::atomic_ref(args.seconds[i])
            .fetch_add(std::chrono::duration<double>(Clock::now() - begin).count(),
                       std::memory_order_relaxed);
      float* const kept = i + 1 == plan_.size() ? nullptr : inner_y(args, i);
      if (kept) unpack(i + 1, args.n, first, count, scratch, kept);
    }
    finish(args, first, count, scratch);
  }

  void run_layer(const RunArgs& args, std::size_t i, Index first, Index count,
                 const Room& scratch) const {
    const SpikeTables::Layer& layer = tables_->layer(i);
    const SpikeBlock in = bits(scratch, i), out = bits(scratch, i + 1);
    auto* const floats = reinterpret_cast<float*>(scratch + plan_.scratch().floats);
    if (layer.first) {
      const Stage& stage = plan_.stage(0);
      layer.first->run(
          count, static_cast<const std::uint8_t*>(args.x) + first * stage.h * stage.w * stage.c,
          out, scratch + plan_.scratch().images);
    } else if (layer.conv) {
      layer.conv->run(count, in, out);
    } else if (plan_.mean() && i + 1 == plan_.size()) {
      if (layer.events)
        layer.events->run_mean(count, in, mean(scratch), floats);
      else
        layer.linear->run_mean(count, in, mean(scratch), floats);
    } else if (layer.events) {
      layer.events->run(count, in, out, floats);
    } else {
      layer.linear->run(count, in, out, floats);
    }
  }

  float* mean(const Room& scratch) const {
    return reinterpret_cast<float*>(scratch + plan_.scratch().mean);
  }
  static float* inner_y(const RunArgs& args, std::size_t i) {
    if (i == 0) return args.inner_y;
    return args.later.size() >= i ? args.later[i - 1].inner_y : nullptr;
  }

  void unpack(std::size_t boundary, Index total, Index first, Index count, const Room& scratch,
              float* to) const {
    const SpikeLayout& layout = plan_.layout(boundary);
    const Index image = layout.h * layout.w * layout.c;
    unpack_spikes(layout, plan_.steps(), count, bits(scratch, boundary), to + first * image,
                  total * image);
  }

  void finish(const RunArgs& args, Index first, Index count, const Room& scratch) const {
    auto* const y = static_cast<float*>(args.y);
    if (!plan_.mean()) return unpack(plan_.size(), args.n, first, count, scratch, y);
    const Index k = plan_.stage(plan_.size() - 1).k;
    const float* const values = mean(scratch);
    if (y) std::copy_n(values, count * k, y + first * k);
    if (args.labels)
      for (Index i = 0; i < count; ++i) args.labels[first + i] = arg_max(values + i * k, k);
  }

  SpikePlan plan_;
  int threads_;
  std::string packing_;
  std::shared_ptr<const SpikeTables> tables_;
};

class SpikeChainKernel final : public Kernel {
 public:
  SpikeChainKernel()
      : Kernel({.name = "spike_chain",
                .arithmetic = "sums of bits by table",
                .device = DeviceKind::cpu,
                .serves = served_by_spikes,
                .chain = serves_every_chain,
                .exact = true,
                .folds = true,
                .any_n = true,
                .keeps_inner = true}) {}

 private:
  void refuse_chain(const Chain& chain, const Machine&, Reasons& why) const override {
    refuse_spike_chain(chain, why);
  }
  std::vector<Tile> chain_tiles(const Chain&, const Machine&) const override {
    return {{fmt::format("{} images", SpikePlan::block)}};
  }

  Cost chain_cost(const Chain& chain, const Tile&, const Machine& machine) const override {
    const double rate = core_costs(machine).spike_chain.multiply_speed * machine.peak_flops;
    Cost cost;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const Shapes shapes = shapes_of(chain[i]);
      const bool held = chain[i].dtype == DType::u8;
      const double macs =
          static_cast<double>(shapes.macs) * static_cast<double>(held ? 1 : chain.steps());
      cost.flops += 2 * macs;
      cost.seconds += 2 * macs / rate;
      cost.bytes += static_cast<double>(shapes.w_elements) * 4;
    }
    const Shapes first = shapes_of(chain.front()), last = shapes_of(chain.back());
    cost.bytes +=
        static_cast<double>(first.x_elements) * static_cast<double>(size_of(chain.front().dtype)) +
        static_cast<double>(last.y_elements) * 4;
    return cost;
  }
  std::unique_ptr<Prepared> chain_prepare(const Chain& chain, const Tile&,
                                          const Machine& machine) const override {
    return std::make_unique<PreparedSpikeChain>(chain, machine);
  }
};

}  // namespace

const Kernel& spike_chain() {
  static const SpikeChainKernel kernel;
  return kernel;
}

}  // namespace convoy::cpu
