// The search that fits a cost model's constants to measured tiles.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <span>

namespace convoy::bench {

/// Random steps from `best` to constants of less loss, of a few of them at a time, shorter when
/// they fail, longer when they help. Constant::value gives a reference to its number in Costs.
template <class Costs, class Constant, class Loss>
Costs descend(Costs best, std::span<const Constant> constants, const Loss& loss, int steps,
              std::mt19937& random) {
  std::normal_distribution<double> normal;
  double least = loss(best), length = 0.1;
  for (int step = 0; step < steps; ++step) {
    Costs next = best;
    const int count = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < count; ++i)
      std::invoke(constants[random() % constants.size()].value, next) *=
          std::exp(length * normal(random));
    const double now = loss(next);
    if (now < least) {
      best = next;
      least = now;
      length = std::min(0.5, 1.5 * length);
    } else {
      length = length < 1e-3 ? 0.3 : 0.98 * length;
    }
  }
  return best;
}

/// One constant a third off, up or down.
template <class Costs, class Constant>
void put_off(Costs& costs, const Constant& constant, std::mt19937& random) {
  std::invoke(constant.value, costs) *= random() % 2 ? 1.33 : 0.75;
}

/// Whether a fit from wrong constants came back at least half of the way to the loss of ours.
inline bool came_back(double ours, double before, double after) {
  return before > ours && after < (before + ours) / 2;
}

}  // namespace convoy::bench
