#include "verify/error_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/compare.hpp"

namespace convoy::verify {
namespace {

/// Half a unit in the last place of a type: relative, and absolute below its normal numbers.
struct Roundoff {
  double relative = 0, absolute = 0;
};
Roundoff roundoff_of(DType type) {
  switch (type) {
    case DType::f32:
      return {0x1p-24, 0x1p-150};
    case DType::f16:
      return {0x1p-11, 0x1p-25};
    case DType::bf16:
      return {0x1p-8, 0x1p-134};
    case DType::u8:
    case DType::i32:
      break;
  }
  return {};  // nothing is stored or multiplied in them
}

/// From here on a number is infinite in a type: half a unit in the last place above its largest.
double overflow_of(DType type) {
  switch (type) {
    case DType::f16:
      return 65520;
    case DType::bf16:
      return 0x1p128 - 0x1p119;
    case DType::f32:
    case DType::u8:
    case DType::i32:
      break;
  }
  return 0x1p128 - 0x1p103;
}

}  // namespace

std::vector<double> error_bounds(const Stage& stage, const std::vector<double>& want,
                                 const std::vector<double>& magnitude, double sum_roundoff) {
  const auto filters = static_cast<std::size_t>(stage.k);
  std::vector<double> widest(filters);  // of all outputs of a filter
  for (std::size_t i = 0; i < magnitude.size(); ++i)
    if (std::isfinite(magnitude[i]))
      widest[i % filters] = std::max(widest[i % filters], magnitude[i]);
  // What is multiplied after `norm` was rounded to the stage's type.
  const DType multiplied = stage.dtype == DType::u8 ? stage.output_dtype() : stage.dtype;
  const double rounded = stage.norm ? roundoff_of(multiplied).relative : 0;
  const Roundoff stored = roundoff_of(stage.output_dtype());
  std::vector<double> bounds(want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error =
        sum_roundoff * (own_error * magnitude[i] + tile_error * widest[i % filters]) +
        rounded * magnitude[i];
    bounds[i] = error + stored.relative * (std::abs(want[i]) + error) + stored.absolute;
  }
  return bounds;
}

std::string compare_real(std::string_view what, const Stage& stage, const std::vector<float>& got,
                         const std::vector<double>& want, const std::vector<double>& magnitude,
                         const std::vector<Index>& shape, Allowance allowance) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double overflow = overflow_of(stage.output_dtype());
  const auto stored = [&](double value) {
    return std::abs(value) >= overflow ? std::copysign(infinity, value) : value;
  };
  std::vector<double> bounds = error_bounds(stage, want, magnitude, allowance.sum_roundoff);
  std::vector<double> expected(want);
  std::vector<float> found(got);
  for (std::size_t i = 0; i < want.size(); ++i) {
    bounds[i] *= allowance.times;
    if (std::abs(want[i]) + bounds[i] >= overflow)
      bounds[i] = std::abs(want[i]) - bounds[i] >= overflow ? 0 : infinity;
    expected[i] = stored(want[i]);
  }
  for (float& value : found) value = static_cast<float>(stored(value));
  return compare_close(what, found, expected, bounds, shape);
}

}  // namespace convoy::verify
