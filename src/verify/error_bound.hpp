// How far an output of real numbers may be from y64: each by itself, from what it is the sum of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::verify {

/// In units of what a sum is rounded to (fp32: 2^-24), what a kernel may be off, whatever its order
/// of summation: so much of the output's own sum of |x·w| and |bias|, and so much of the largest
/// one of its filter's outputs, for Winograd's errors come from all pixels of a tile. About three
/// times the largest that drawn stages showed, of the own sum by direct kernels and of the largest
/// one by Winograd's. A wrong product is seen where an output has fewer than 2^24 / 40 of them.
inline constexpr double own_error = 24, tile_error = 16;

/// The bound of each output: the two above, and the rounding to the output type. `magnitude` is
/// that of reference::Sum::magnitude, all filters of a pixel side by side, as `want`.
/// `sum_roundoff`: the kernel's (KernelFacts).
std::vector<double> error_bounds(const Stage& stage, const std::vector<double>& want,
                                 const std::vector<double>& magnitude,
                                 double sum_roundoff = 0x1p-24);

/// What a kernel's sums are rounded to, and how many times the bound is allowed.
struct Allowance {
  double sum_roundoff = 0x1p-24;
  double times = 1;
};

/// compare_close by these bounds, of values in the stage's output type: what is beyond its largest
/// number is infinite there, and where y64 is within the bound of that, it may be or not.
std::string compare_real(std::string_view what, const Stage& stage, const std::vector<float>& got,
                         const std::vector<double>& want, const std::vector<double>& magnitude,
                         const std::vector<Index>& shape, Allowance allowance);

}  // namespace convoy::verify
