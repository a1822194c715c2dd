// Fits the constants of halo_seconds to measured tiles and prints them as costs.hpp has them.
//
//   fit_halo_cost [--steps N] [--seed N] FILE... [--beside FILE...]
//   fit_halo_cost --check FILE...
//
// FILE holds rows {"stage", "tiles": [[tile, microseconds], ...]}, as
// bench/fit/h200/tiles.json. Minimised is what the picks take over the best tile of each stage
// and, far less, the distance of the predicted times. Files after --beside are only reported on.
// --check sees whether the fit still does: from constants that are a third off it must come back at
// least half of the way to the loss of those in costs.hpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "bench/fit/descent.hpp"
#include "bench/fit/h200.hpp"
#include "bench/fit/measured_tiles.hpp"

namespace convoy::cuda::sm90 {
namespace {

struct Constant {
  const char* name;
  double HaloCosts::*value;
};
// All but the clock, which scales all times alike.
constexpr std::array constants{
    Constant{"l2", &HaloCosts::l2},
    Constant{"memory", &HaloCosts::memory},
    Constant{"store", &HaloCosts::store},
    Constant{"gap", &HaloCosts::gap},
    Constant{"gap_resident", &HaloCosts::gap_resident},
    Constant{"gap_pingpong", &HaloCosts::gap_pingpong},
    Constant{"uncovered", &HaloCosts::uncovered},
    Constant{"covered", &HaloCosts::covered},
    Constant{"narrow", &HaloCosts::narrow},
    Constant{"several", &HaloCosts::several},
    Constant{"slot", &HaloCosts::slot},
    Constant{"box_a_tap", &HaloCosts::box_a_tap},
    Constant{"pixel", &HaloCosts::pixel},
    Constant{"skipping", &HaloCosts::skipping},
    Constant{"hidden_loads", &HaloCosts::hidden_loads},
    Constant{"epilogue", &HaloCosts::epilogue},
    Constant{"epilogue_pixel", &HaloCosts::epilogue_pixel},
    Constant{"epilogue_plain", &HaloCosts::epilogue_plain},
    Constant{"crowded", &HaloCosts::crowded},
    Constant{"last_store", &HaloCosts::last_store},
    Constant{"first_weights", &HaloCosts::first_weights},
};

// The picks' mean excess, each tile weighed by how near it comes to the least prediction: a step
// at every change of a pick would hide the way down. Excess beyond a tenth counts twice.
double loss(const std::vector<MeasuredStage>& stages, const HaloCosts& costs) {
  constexpr double temperature = 0.01, of_distance = 0.02;
  double excess = 0, distance = 0;
  std::vector<double> predicted;
  for (const MeasuredStage& stage : stages) {
    predicted.clear();
    for (const MeasuredTile& tile : stage.tiles)
      predicted.push_back(halo_seconds(stage.stage, tile.tile, tile.layout, h200(), costs));
    const double least = *std::min_element(predicted.begin(), predicted.end());
    double weights = 0, picked = 0, squares = 0;
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      const double us = stage.tiles[i].microseconds, over = us / stage.best - 1;
      const double weight = std::exp((1 - predicted[i] / least) / temperature);
      weights += weight;
      picked += weight * (over + std::max(0.0, over - 0.1));
      const double log = std::log(predicted[i] * 1e6 / us);
      squares += log * log;
    }
    excess += picked / weights;
    distance += squares / static_cast<double>(predicted.size());
  }
  return (excess + of_distance * distance) / static_cast<double>(stages.size());
}

HaloCosts fit(const std::vector<MeasuredStage>& stages, int steps, const HaloCosts& from,
              std::mt19937& random) {
  const auto of = [&](const HaloCosts& costs) { return loss(stages, costs); };
  return bench::descend(from, std::span<const Constant>(constants), of, steps, random);
}

// 0 where the fit finds its way back, else 1.
int check(const std::vector<MeasuredStage>& stages, std::mt19937& random) {
  HaloCosts wrong;
  for (const Constant& constant : constants) bench::put_off(wrong, constant, random);
  const double ours = loss(stages, HaloCosts()), before = loss(stages, wrong),
               after = loss(stages, fit(stages, 400, wrong, random));
  std::printf("%zu stages: loss %.5f with ours, %.5f a third off, %.5f fitted from there\n",
              stages.size(), ours, before, after);
  if (bench::came_back(ours, before, after)) return 0;
  std::printf("expected a fit that is at most halfway between: does halo_seconds use its costs?\n");
  return 1;
}

void report(const char* what, const std::vector<MeasuredStage>& stages, const HaloCosts& costs) {
  const Picks picks = picks_of(stages, h200(), costs);
  std::printf(
      "// %s: %zu stages, picks take %.4f of the best on average, %.3f at worst, %zu a tenth "
      "more\n",
      what, picks.stages, picks.mean, picks.worst, picks.slow);
  for (const MeasuredStage& stage : stages) {
    const MeasuredTile& picked = pick(stage, h200(), costs);
    if (picked.microseconds <= 1.1 * stage.best) continue;
    const auto fastest = std::min_element(
        stage.tiles.begin(), stage.tiles.end(),
        [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
    const auto predicted = [&](const MeasuredTile& tile) {
      return 1e6 * halo_seconds(stage.stage, tile.tile, tile.layout, h200(), costs);
    };
    std::printf("//   %.2f  %s: %s %.2f us (predicted %.2f), best %s %.2f (%.2f)\n",
                picked.microseconds / stage.best, stage.text.c_str(), picked.tile.name().c_str(),
                picked.microseconds, predicted(picked), fastest->tile.name().c_str(),
                fastest->microseconds, predicted(*fastest));
  }
}

int run(int count, char** arguments) {
  int steps = 20000;
  unsigned seed = 1;
  bool beside = false, only_check = false;
  std::vector<MeasuredStage> stages;
  std::vector<std::pair<const char*, std::vector<MeasuredStage>>> others;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--beside") == 0) {
      beside = true;
    } else if (std::strcmp(arguments[i], "--check") == 0) {
      only_check = true;
    } else if (std::strcmp(arguments[i], "--steps") == 0 && i + 1 < count) {
      steps = std::atoi(arguments[++i]);
    } else if (std::strcmp(arguments[i], "--seed") == 0 && i + 1 < count) {
      seed = static_cast<unsigned>(std::atoi(arguments[++i]));
    } else {
      std::vector<MeasuredStage> read = measured_tiles(arguments[i], h200());
      if (beside)
        others.emplace_back(arguments[i], std::move(read));
      else
        std::move(read.begin(), read.end(), std::back_inserter(stages));
    }
  }
  if (stages.empty()) {
    std::fprintf(
        stderr,
        "usage: fit_halo_cost [--check] [--steps N] [--seed N] FILE... [--beside FILE...]\n");
    return 2;
  }
  std::mt19937 random(seed);
  if (only_check) return check(stages, random);
  std::printf("// before: loss %.5f\n", loss(stages, HaloCosts()));
  const HaloCosts costs = fit(stages, steps, HaloCosts(), random);
  std::printf("// after: loss %.5f\n", loss(stages, costs));
  for (const Constant& constant : constants)
    std::printf("%s = %.4g\n", constant.name, costs.*constant.value);
  report("fitted to", stages, costs);
  for (const auto& [name, other] : others) report(name, other, costs);
  return 0;
}

}  // namespace
}  // namespace convoy::cuda::sm90

int main(int count, char** arguments) {
  try {
    return convoy::cuda::sm90::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fit_halo_cost: %s\n", error.what());
    return 2;
  }
}
