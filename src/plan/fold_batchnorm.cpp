#include <fmt/core.h>

#include <cmath>

#include "convoy/plan.hpp"
#include "core/failure.hpp"
#include "plan/operands.hpp"

namespace convoy {
namespace {

void check(std::string_view what, const ConstTensorView& view, int rank, Index first) {
  if (!view || view.dtype != DType::f32 || view.rank != rank || view.shape[0] != first ||
      !view.contiguous() || !(view.device == Device{}))
    throw InvalidOperand(
        fmt::format("fold_batchnorm: {}: found {}, expected a contiguous f32 tensor of {} "
                    "axes, {} filters, on cpu",
                    what, describe(view), rank, first));
  check_aligned(what, view).or_throw();
}
const float* values_of(std::string_view what, const ConstTensorView& view, Index filters) {
  check(what, view, 1, filters);
  return static_cast<const float*>(view.data);
}

}  // namespace

void fold_batchnorm(const TensorView& weights, const TensorView& bias, const ConstTensorView& gamma,
                    const ConstTensorView& beta, const ConstTensorView& mean,
                    const ConstTensorView& variance, float eps) try {
  const Index filters = weights.rank == 4 ? weights.shape[0] : 0;
  check("weights", weights, 4, filters);
  check("bias", bias, 1, filters);
  auto* const w = static_cast<float*>(weights.data);
  auto* const b = static_cast<float*>(bias.data);
  const float* const g = values_of("gamma", gamma, filters);
  const float* const s = values_of("beta", beta, filters);
  const float* const m = values_of("mean", mean, filters);
  const float* const v = values_of("variance", variance, filters);
  if (filters < 1)
    throw InvalidOperand("fold_batchnorm: weights have no filters, expected [K,R,S,C/groups]");
  for (Index k = 0; k < filters; ++k) {
    // Written so that NaN fails as well.
    if (!(static_cast<double>(v[k]) + static_cast<double>(eps) > 0))
      throw InvalidOperand(
          fmt::format("fold_batchnorm: variance[{}] + eps is {}, expected above 0. Is the file "
                      "of another parameter?",
                      k, static_cast<double>(v[k]) + static_cast<double>(eps)));
  }
  const Index taps = weights.elements() / filters;
  for (Index k = 0; k < filters; ++k) {
    // In double: the fold happens once, and its rounding would stay for good.
    const double scale =
        static_cast<double>(g[k]) / std::sqrt(static_cast<double>(v[k]) + static_cast<double>(eps));
    for (Index i = 0; i < taps; ++i)
      w[k * taps + i] = static_cast<float>(static_cast<double>(w[k * taps + i]) * scale);
    b[k] = static_cast<float>((static_cast<double>(b[k]) - static_cast<double>(m[k])) * scale +
                              static_cast<double>(s[k]));
  }
} catch (...) {
  rethrow_as_error();
}

}  // namespace convoy
