#include "verify/exact_sums.hpp"

#include <algorithm>
#include <cmath>

#include "math/half.hpp"
#include "reference/reference.hpp"

namespace convoy::verify {
namespace {

using reference::Oracle;
using reference::Sum;

// The largest power of two up to 1 of which all numbers are multiples; 0 where one is not finite or
// too fine. Of nothing 1.
double unit_of(const Tensor& x) {
  double unit = 1;
  for (Index i = 0; i < x.elements(); ++i) {
    const double value = math::load(x.view().dtype, x.view().data, i);
    while (unit > 0x1p-24 && !(value / unit == std::floor(value / unit))) unit /= 2;
    if (!std::isfinite(value) || value / unit != std::floor(value / unit)) return 0;
  }
  return unit;
}

}  // namespace

bool sums_are_exact(const Inputs& inputs, Index times, Threads& threads) {
  Stage sums = inputs.stage;
  if (sums.act.is_neuron() && !sums.hold) sums.n *= sums.t;
  sums.act = no_act;
  sums.soft = sums.hold = false;
  sums.t = 1;
  sums.pool.reset();
  const double unit = std::min(unit_of(inputs.x) * unit_of(inputs.weights),
                               inputs.bias.view() ? unit_of(inputs.bias) : 1);
  if (unit == 0) return false;
  const auto magnitude =
      Oracle(sums, inputs.weights, inputs.operands(), Sum::magnitude).all(threads).y;
  return std::all_of(magnitude.begin(), magnitude.end(),
                     [&](double sum) { return sum * static_cast<double>(times) < 0x1p24 * unit; });
}

}  // namespace convoy::verify
