// Fits the constants of core_costs.hpp to measured tiles and says what that changes.
//
//   fit_cpu_cost [--steps N] [--seed N] FILE...
//   fit_cpu_cost --check MEAN WORST FILE...
//
// FILE is what bench/tiles_cpu.py wrote, all of one class of cores. Minimised is what the picks
// take over the best tile of each stage, and the distance of the predicted times but for a factor
// that is the same of all: only ratios matter to a choice. A constant stays where the tiles say
// little or nothing of it. --check exits with 1 unless what selection chooses with today's
// constants takes at most MEAN (geometric mean) and WORST of the best tiles, and the fit still
// does: from constants that are a third off it must come back at least half of the way to the loss
// of today's.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench/fit/core_constants.hpp"
#include "bench/fit/cpu_tiles.hpp"
#include "bench/fit/descent.hpp"

namespace convoy::bench {
namespace {

using Stages = std::vector<CpuStage>;

// Logarithms of predicted over measured times, of each stage's tiles.
std::vector<std::vector<double>> errors(const Stages& stages, const CoreCosts& costs) {
  std::vector<std::vector<double>> all;
  double sum = 0, count = 0;
  for (const CpuStage& stage : stages) {
    std::vector<double>& logs = all.emplace_back(predicted_microseconds(stage, costs));
    for (std::size_t i = 0; i < logs.size(); ++i) {
      logs[i] = std::log(logs[i] / stage.tiles[i].microseconds);
      sum += logs[i];
    }
    count += static_cast<double>(logs.size());
  }
  for (std::vector<double>& logs : all)
    for (double& log : logs) log -= sum / count;
  return all;
}

// The picks' mean excess, each tile weighed by how near it comes to the least prediction: a step
// at every change of a pick would hide the way down.
double loss(const Stages& stages, const CoreCosts& costs) {
  constexpr double temperature = 0.01, of_distance = 0.2;
  const std::vector<std::vector<double>> logs = errors(stages, costs);
  double sum = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::vector<CpuTile>& tiles = stages[s].tiles;
    const auto predicted = [&](std::size_t i) {
      return logs[s][i] + std::log(tiles[i].microseconds);
    };
    double least = predicted(0);
    for (std::size_t i = 1; i < tiles.size(); ++i) least = std::min(least, predicted(i));
    double weights = 0, picked = 0, squares = 0;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      const double weight = std::exp((least - predicted(i)) / temperature);
      weights += weight;
      picked += weight * std::log(tiles[i].microseconds / stages[s].best);
      squares += logs[s][i] * logs[s][i];
    }
    sum += picked / weights + of_distance * squares / static_cast<double>(tiles.size());
  }
  return sum / static_cast<double>(stages.size());
}

// Those that some measured tile depends on.
std::vector<CoreConstant> seen(const Stages& stages, const CoreCosts& costs) {
  std::vector<CoreConstant> seen;
  const double now = loss(stages, costs);
  for (const CoreConstant& constant : core_constants) {
    CoreCosts less = costs, more = costs;
    constant.value(less) /= 1.5;
    constant.value(more) *= 1.5;
    if (loss(stages, less) != now || loss(stages, more) != now) seen.push_back(constant);
  }
  return seen;
}

CoreCosts fit(const Stages& stages, const std::vector<CoreConstant>& constants, int steps,
              const CoreCosts& from, std::mt19937& random) {
  // A constant that the tiles say little of stays near where it was.
  constexpr double pull = 3e-4;
  const auto of = [&](const CoreCosts& costs) {
    double moved = 0;
    for (const CoreConstant& constant : constants)
      moved += std::pow(std::log(constant.in(costs) / constant.in(from)), 2);
    return loss(stages, costs) + pull * moved;
  };
  return descend(from, std::span<const CoreConstant>(constants), of, steps, random);
}

int check(const Stages& stages, const CoreCosts& ours, double mean, double worst,
          std::mt19937& random) {
  const CpuRegret now = regret(stages, ours);
  std::printf(
      "%zu stages: choices take %.4f of the best, %.3f at worst; expected at most %.3f, %.2f\n",
      stages.size(), now.mean, now.worst, mean, worst);
  const std::vector<CoreConstant> constants = seen(stages, ours);
  CoreCosts wrong = ours;
  for (const CoreConstant& constant : constants) put_off(wrong, constant, random);
  const double today = loss(stages, ours), before = loss(stages, wrong),
               after = loss(stages, fit(stages, constants, 400, wrong, random));
  std::printf("%zu constants: loss %.5f today, %.5f a third off, %.5f fitted from there\n",
              constants.size(), today, before, after);
  const bool back = came_back(today, before, after);
  if (!back)
    std::printf("expected a fit that is at most halfway: do the cost models use core_costs?\n");
  return back && now.mean <= mean && now.worst <= worst ? 0 : 1;
}

// A line a kernel: how far its predictions are from what was measured.
void report_errors(const Stages& stages, const CoreCosts& before, const CoreCosts& after) {
  struct Error {
    double sum = 0, squares = 0, worst = 0;
    void add(double log) {
      sum += log;
      squares += log * log;
      if (std::abs(log) > std::abs(worst)) worst = log;
    }
  };
  std::map<std::string, std::pair<Error, Error>> of_kernels;
  std::map<std::string, int> counts;
  const auto was = errors(stages, before), is = errors(stages, after);
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (std::size_t i = 0; i < stages[s].tiles.size(); ++i) {
      const std::string name(stages[s].tiles[i].kernel->name());
      of_kernels[name].first.add(was[s][i]);
      of_kernels[name].second.add(is[s][i]);
      ++counts[name];
    }
  std::printf(
      "\npredicted / measured       today: mean  spread   worst   fitted: mean  spread   worst\n");
  for (const auto& [name, error] : of_kernels) {
    const double count = counts[name];
    std::printf("%-16s %4d tiles", name.c_str(), counts[name]);
    for (const Error& one : {error.first, error.second}) {
      const double mean = one.sum / count;
      const double variance = std::max(0.0, one.squares / count - mean * mean);
      std::printf("  %10.3f %7.3f %7.3f", std::exp(mean), std::exp(std::sqrt(variance)),
                  std::exp(one.worst));
    }
    std::printf("\n");
  }
}

void report_choices(const Stages& stages, const CoreCosts& before, const CoreCosts& after) {
  const CpuRegret was = regret(stages, before), is = regret(stages, after);
  std::printf(
      "\nchoices of %zu stages take of the best tile: today %.4f, %.3f at worst; fitted "
      "%.4f, %.3f at worst\n",
      stages.size(), was.mean, was.worst, is.mean, is.worst);
  int changed = 0;
  for (const CpuStage& stage : stages) {
    const CpuPick old = pick(stage, before), now = pick(stage, after);
    const bool differ = old.name() != now.name();
    changed += differ ? 1 : 0;
    if (!differ && now.microseconds <= 1.1 * stage.best) continue;
    std::printf("  %s: %s %.1f us%s", stage.text.c_str(), old.name().c_str(), old.microseconds,
                old.measured ? "" : " (not measured)");
    if (differ)
      std::printf(", fitted %s %.1f us%s", now.name().c_str(), now.microseconds,
                  now.measured ? "" : " (not measured)");
    std::printf(", best %.1f us\n", stage.best);
  }
  std::printf("%d choices change\n", changed);
}

void report(const Stages& stages, const CoreCosts& before, const CoreCosts& after,
            const std::vector<CoreConstant>& constants) {
  std::printf("%s, fitted %s; loss %.5f today, %.5f fitted\n", std::string(before.cores).c_str(),
              std::string(before.fitted).c_str(), loss(stages, before), loss(stages, after));
  for (const CoreConstant& constant : core_constants) {
    const bool was_seen = std::any_of(constants.begin(), constants.end(), [&](const auto& one) {
      return std::strcmp(one.name, constant.name) == 0;
    });
    const double old = constant.in(before);
    if (was_seen)
      std::printf("%-40s %10.4g -> %.4g\n", constant.name, old, constant.in(after));
    else
      std::printf("%-40s %10.4g    no measured tile depends on it\n", constant.name, old);
  }
  report_errors(stages, before, after);
  report_choices(stages, before, after);
}

int run(int count, char** arguments) {
  int steps = 20000;
  unsigned seed = 1;
  double mean = 0, worst = 0;
  Stages stages;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--check") == 0 && i + 2 < count) {
      mean = std::atof(arguments[++i]);
      worst = std::atof(arguments[++i]);
    } else if (std::strcmp(arguments[i], "--steps") == 0 && i + 1 < count) {
      steps = std::atoi(arguments[++i]);
    } else if (std::strcmp(arguments[i], "--seed") == 0 && i + 1 < count) {
      seed = static_cast<unsigned>(std::atoi(arguments[++i]));
    } else {
      Stages read = cpu_tiles(arguments[i]);
      std::move(read.begin(), read.end(), std::back_inserter(stages));
    }
  }
  if (stages.empty()) {
    std::fprintf(stderr,
                 "usage: fit_cpu_cost [--check MEAN WORST] [--steps N] [--seed N] FILE...\n");
    return 2;
  }
  const CoreCosts& ours = cpu::core_costs(stages.front().machine);
  for (const CpuStage& stage : stages)
    if (&cpu::core_costs(stage.machine) != &ours)
      throw std::runtime_error("the files are of " + std::string(ours.cores) + " and of " +
                               std::string(cpu::core_costs(stage.machine).cores) +
                               ": fit each class of cores by itself");
  std::mt19937 random(seed);
  if (mean > 0) return check(stages, ours, mean, worst, random);
  const std::vector<CoreConstant> constants = seen(stages, ours);
  report(stages, ours, fit(stages, constants, steps, ours, random), constants);
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int count, char** arguments) {
  try {
    return convoy::bench::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fit_cpu_cost: %s\n", error.what());
    return 2;
  }
}
