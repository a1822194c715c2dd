#include "verify/error_bound.hpp"

#include <algorithm>
#include <cmath>

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

}  // namespace convoy::verify
