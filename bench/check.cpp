#include "bench/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "convoy/error.hpp"
#include "math/half.hpp"
#include "reference/reference.hpp"

namespace convoy::bench {
namespace {

float load(const TensorView& view, Index i) {
  switch (view.dtype) {
    case DType::f32:
      return static_cast<const float*>(view.data)[i];
    case DType::f16:
      return math::half_to_float(static_cast<const std::uint16_t*>(view.data)[i]);
    default:
      return math::bfloat_to_float(static_cast<const std::uint16_t*>(view.data)[i]);
  }
}

void poison(const TensorView& view) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Index count = view.elements();
  if (view.dtype == DType::f32)
    std::fill_n(static_cast<float*>(view.data), count, nan);
  else
    for (Index i = 0; i < count; ++i) store_half(view, i, nan);
}

// Where output (t, n, i, j, k) lies in a dense y of the stage's layout.
Index place(const Stage& stage, const Shapes& shapes, Index t, Index n, Index i, Index j, Index k) {
  const Index image = t * stage.n + n;
  if (stage.layout == Layout::nchw)
    return ((image * stage.k + k) * shapes.out_h + i) * shapes.out_w + j;
  return ((image * shapes.out_h + i) * shapes.out_w + j) * stage.k + k;
}

}  // namespace

void store_half(const TensorView& view, Index i, float value) {
  static_cast<std::uint16_t*>(view.data)[i] =
      view.dtype == DType::f16 ? math::float_to_half(value) : math::float_to_bfloat(value);
}

double checked_error(const Stage& stage, const Operands& operands, const TensorView& weights,
                     const Plan& plan) {
  poison(operands.y);
  plan.run(operands).or_throw();
  const Shapes& shapes = plan.shapes();
  const reference::Oracle oracle(stage, weights, operands, reference::Sum::real);

  // A window costs the oracle this many multiply-adds; half a second's worth, 64 windows at least.
  const Index taps = stage.pool ? stage.pool->window.h * stage.pool->window.w : 1;
  const double cost = static_cast<double>(shapes.gemm_k * stage.k * taps * stage.t);
  const Index windows = stage.n * shapes.out_h * shapes.out_w;
  const Index samples = std::min(windows, static_cast<Index>(std::max(64.0, 3e8 / cost)));
  std::mt19937_64 random(3);
  double most = 0, difference = 0;
  Index differing = 0, compared = 0;
  for (Index sample = 0; sample < samples; ++sample) {
    // Corners first, then anywhere.
    const auto any = [&](Index size, int corner) {
      if (sample < 4) return (corner ? size - 1 : Index{0});
      return static_cast<Index>(random() % static_cast<std::uint64_t>(size));
    };
    const Index n = any(stage.n, sample & 1), i = any(shapes.out_h, sample & 1),
                j = any(shapes.out_w, sample & 2);
    const reference::Window window = oracle.window(n, i, j);
    for (Index t = 0; t < stage.t; ++t)
      for (Index k = 0; k < stage.k; ++k) {
        const double want = window.y[static_cast<std::size_t>(t * stage.k + k)];
        const double found = load(operands.y, place(stage, shapes, t, n, i, j, k));
        ++compared;
        differing += !(found == want);
        most = std::max(most, std::abs(want));
        // A NaN that was left or made compares as infinitely wrong.
        const double error = std::abs(found - want);
        difference = std::max(difference,
                              std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
      }
  }
  // Neurons are discontinuous: a few spikes sit on the threshold. `verify` has the exact rule.
  const double error = stage.act.is_neuron()
                           ? static_cast<double>(differing) / static_cast<double>(compared)
                           : difference / std::max(most, 1e-30);
  const DType out = stage.output_dtype();
  const double bound = stage.act.is_neuron() ? 1e-3
                       : out == DType::f32   ? 3e-5
                       : out == DType::f16   ? 2e-3
                                             : 1.6e-2;
  if (!(error <= bound))
    throw Error(
        fmt::format("{}: kernel {} is wrong, error {:.2g}, expected at most {:.2g}. repro: convoy "
                    "verify --stage \"{}\" --kernel {}",
                    to_text(stage), plan.kernel(), error, bound, to_text(stage), plan.kernel()));
  return error;
}

}  // namespace convoy::bench
