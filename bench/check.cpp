#include "bench/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "convoy/error.hpp"
#include "math/half.hpp"
#include "plan/kernel_table.hpp"
#include "reference/reference.hpp"

namespace convoy::bench {
namespace {

constexpr int poison = 0xFF;  // every byte: NaN in all output types

Index unwritten(const ConstTensorView& view) {
  const std::size_t size = size_of(view.dtype);
  const std::uint32_t pattern = size == 4 ? 0xFFFFFFFFU : 0xFFFFU;
  Index count = 0;
  for (Index i = 0; i < view.elements(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(view.data) + static_cast<std::size_t>(i) * size,
                size);
    count += bits == pattern;
  }
  return count;
}

// Where output (t, n, i, j, k) lies in a dense y of the stage's layout.
Index place(const Stage& stage, const Shapes& shapes, Index t, Index n, Index i, Index j, Index k) {
  const Index image = t * stage.n + n;
  if (stage.layout == Layout::nchw)
    return ((image * stage.k + k) * shapes.out_h + i) * shapes.out_w + j;
  return ((image * shapes.out_h + i) * shapes.out_w + j) * stage.k + k;
}

// Every `step`-th image of a view whose last axes are H, W, C or so.
ConstTensorView every(Index step, Index images, ConstTensorView view) {
  if (!view) return view;
  const auto axis = static_cast<std::size_t>(view.rank - 4);
  view.shape[axis] = images;
  view.stride[axis] *= step;
  return view;
}

struct Compared {
  double most = 0, difference = 0;
  Index differing = 0, outputs = 0;

  void add(double found, double want) {
    ++outputs;
    differing += !(found == want);
    most = std::max(most, std::abs(want));
    // A NaN that was made compares as infinitely wrong.
    const double error = std::abs(found - want);
    difference =
        std::max(difference, std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
  }
  void add(const Compared& other) {
    most = std::max(most, other.most);
    difference = std::max(difference, other.difference);
    differing += other.differing;
    outputs += other.outputs;
  }
};

// Outputs of a window that is drawn by its number: of the first, last or a middle image. `few` are
// the `step`-th ones of the stage's.
Compared compare_window(const reference::Oracle& oracle, const Stage& stage, Index few, Index step,
                        Index sample, const ConstTensorView& y) {
  const Shapes shapes = shapes_of(stage);
  std::mt19937_64 random(static_cast<std::uint64_t>(sample));
  // Corners first, then anywhere.
  const auto any = [&](Index size, bool last) {
    if (sample < 4) return last ? size - 1 : Index{0};
    return static_cast<Index>(random() % static_cast<std::uint64_t>(size));
  };
  const Index n = any(few, sample & 1), i = any(shapes.out_h, sample & 1),
              j = any(shapes.out_w, sample & 2);
  const reference::Window window = oracle.window(n, i, j);
  Compared compared;
  for (Index t = 0; t < stage.t; ++t)
    for (Index k = 0; k < stage.k; ++k)
      compared.add(math::load(y.dtype, y.data, place(stage, shapes, t, n * step, i, j, k)),
                   window.y[static_cast<std::size_t>(t * stage.k + k)]);
  return compared;
}

// The largest error allowed, relative to the largest output; of a neuron the share of spikes.
double error_bound(const Stage& stage, const Plan& plan) {
  const DType out = stage.output_dtype();
  const double of_output = stage.act.is_neuron() ? 1e-3
                           : out == DType::f32   ? 3e-5
                           : out == DType::f16   ? 2e-3
                                                 : 1.6e-2;
  // Sums of less than fp32 err more than the output's rounding does.
  const Kernel* const kernel = find_kernel(plan.kernel(), plan.device().kind);
  return std::max(of_output, kernel != nullptr ? 64 * kernel->facts().sum_roundoff : 0);
}

}  // namespace

Error wrong_output(const Chain& chain, std::string_view kernel, DeviceKind device,
                   const std::string& why) {
  return Error(
      fmt::format("{}: kernel {} is wrong, {}. repro: convoy verify --stage \"{}\" --kernel {}{}",
                  to_text(chain), kernel, why, to_text(chain), kernel,
                  device == DeviceKind::cuda ? " --device cuda" : ""));
}

double checked_error(const Stage& stage, const Operands& operands, const ConstTensorView& weights,
                     const Plan& plan, const std::function<void()>& run) {
  std::memset(operands.y.data, poison,
              static_cast<std::size_t>(operands.y.elements()) * size_of(operands.y.dtype));
  run();
  const Shapes& shapes = plan.shapes();
  const auto wrong = [&](const std::string& why) {
    return wrong_output(stage, plan.kernel(), plan.device().kind, why);
  };
  if (const Index count = unwritten(operands.y))
    throw wrong(fmt::format("{} outputs were not written", count));

  // Three images are looked at: the first, the last or nearly so, and one between.
  Stage few = stage;
  few.n = std::min<Index>(stage.n, 3);
  const Index step = few.n == 3 ? (stage.n - 1) / 2 : 1;
  Operands inputs = operands;
  inputs.x = every(step, few.n, operands.x);
  inputs.membrane_in = every(step, few.n, operands.membrane_in);
  const reference::Oracle oracle(few, weights, inputs, reference::Sum::real);

  // A window costs the oracle this many multiply-adds; half a second's worth, 64 windows at least.
  const Index taps = stage.pool ? stage.pool->window.h * stage.pool->window.w : 1;
  const double cost = static_cast<double>(shapes.gemm_k * stage.k * taps * stage.t);
  const Index windows = few.n * shapes.out_h * shapes.out_w;
  const Index samples = std::min(windows, static_cast<Index>(std::max(64.0, 3e8 / cost)));
  std::vector<Compared> each(static_cast<std::size_t>(samples));
  Threads threads(default_threads());
  threads.for_each(samples, [&](Index sample, int) {
    each[static_cast<std::size_t>(sample)] =
        compare_window(oracle, stage, few.n, step, sample, operands.y);
  });
  Compared sum;
  for (const Compared& one : each) sum.add(one);
  // Neurons are discontinuous: a few spikes sit on the threshold. `verify` has the exact rule.
  const double error = stage.act.is_neuron()
                           ? static_cast<double>(sum.differing) / static_cast<double>(sum.outputs)
                           : sum.difference / std::max(sum.most, 1e-30);
  const double bound = error_bound(stage, plan);
  if (!(error <= bound))
    throw wrong(fmt::format("error {:.2g}, expected at most {:.2g}", error, bound));
  return error;
}

}  // namespace convoy::bench
