#include "network/tune_network.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/failure.hpp"
#include "core/size.hpp"
#include "plan/measure_tiles.hpp"
#include "plan/select.hpp"
#include "plan/tune_chain.hpp"
#include "plan/tuning_cache.hpp"

namespace convoy {
namespace network {
namespace {

/// A stage or a chain that waits for its measurement.
struct Waiting {
  OwnedChain chain;
  TunedStage stage;  // without rows
};

class Tuner {
 public:
  Tuner(const Program& program, double seconds) : program_(program), seconds_(seconds) {
    options_.device = program.options.device;
    // The number of threads is part of what a row holds for.
    options_.threads = program.on_gpu() ? 0 : program.machine.threads;
    options_.caller_threads = program.options.caller_threads;
    machine_ = machine_for(options_);
  }

  /// Every stage that the network runs with this batch.
  void add(Index batch) {
    if (batch < 1 || batch > most_images)
      throw Error(
          fmt::format("tune: found the batch {}, expected 1 to {} images. Give the batch "
                      "that later networks will have.",
                      batch, most_images));
    for (const Step& step : program_.steps) {
      const auto* kernel = std::get_if<KernelStep>(&step);
      if (!kernel) continue;
      const Size images = Size(batch) * kernel->fold;
      if (!images.fits(most_images))
        throw Error(
            fmt::format("tune: found the batch {}, of which each image has {} time steps "
                        "as separate images, expected at most {} of them in all. Use a "
                        "smaller batch.",
                        batch, kernel->fold, most_images));
      std::vector<std::string> names;
      for (std::size_t i = kernel->first; i < kernel->first + kernel->count; ++i)
        names.push_back(program_.layer(i).name);
      add(with_images(kernel->bound->chain(), images.value()), names, batch);
    }
  }

  NetworkTuneResult measure(bool save, const BeforeMeasurement& before) {
    NetworkTuneResult result;
    TuningCache cache;
    bool any = false;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (before) before(i + 1, waiting_.size(), waiting_[i].stage.stage);
      TunedStage tuned = measured(i);
      any = add_fastest(cache, machine_, waiting_[i].chain, tuned.rows) || any;
      // Stages that are faster by themselves run so from now on, with tiles of their own.
      if (tuned.rows.front().kernel == stages_by_themselves && tuned.rows.front().refused.empty())
        add_single(i);
      result.stages.push_back(std::move(tuned));
    }
    if (save && any) {
      result.saved_to = tuning_cache_path();
      save_tuning_cache(result.saved_to, cache);
    }
    return result;
  }

 private:
  void add(OwnedChain chain, const std::vector<std::string>& layers, Index batch) {
    std::string text = to_text(chain);
    for (Waiting& other : waiting_)
      if (other.stage.stage == text) {
        if (other.stage.batch == batch)
          other.stage.layers.insert(other.stage.layers.end(), layers.begin(), layers.end());
        return;
      }
    waiting_.push_back({std::move(chain), {layers, batch, std::move(text), {}, {}}});
  }

  void add_single(std::size_t i) {
    const std::vector<Stage> stages = stages_alone(waiting_[i].chain);
    const TunedStage whole = waiting_[i].stage;  // `add` may move the list
    for (std::size_t s = 0; s < stages.size(); ++s)
      add(stages[s], {whole.layers.at(s)}, whole.batch);
  }

  TunedStage measured(std::size_t i) const {
    const OwnedChain& chain = waiting_[i].chain;
    TunedStage tuned = waiting_[i].stage;
    if (is_one_stage(chain)) {
      TuneResult one = measure_tiles(chain.stages.front(), options_, seconds_, Arithmetics::chosen);
      tuned.arithmetic = std::move(one.arithmetic);
      tuned.rows = std::move(one.rows);
    } else {
      ChainTuneResult all = tune_chain(chain, options_, seconds_, false);
      tuned.arithmetic = std::move(all.arithmetic);
      tuned.rows = std::move(all.rows);
    }
    return tuned;
  }

  const Program& program_;
  double seconds_;
  PlanOptions options_;
  Machine machine_;
  std::vector<Waiting> waiting_;
};

}  // namespace

NetworkTuneResult tune_network(const Program& program, const std::vector<Index>& batches,
                               double seconds, bool save, const BeforeMeasurement& before) {
  Tuner tuner(program, seconds);
  if (batches.empty()) tuner.add(program.at_once);
  for (const Index batch : batches) tuner.add(batch);
  return tuner.measure(save, before);
}

}  // namespace network

NetworkTuneResult tune(const Network& network, const std::vector<Index>& batches, double seconds,
                       bool save) try {
  return network::tune_network(program_of(network), batches, seconds, save);
} catch (...) {
  rethrow_as_error();
}

}  // namespace convoy
