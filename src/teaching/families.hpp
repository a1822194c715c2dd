// The families of kernels to learn from and to compare with, one function each, as in
// cuda/families.hpp. The planner chooses none of them: they run only if they are named.
#pragma once

#include <cstddef>

#include "core/kernel.hpp"

namespace convoy::cuda::teaching {

/// The rungs from the bottom to the top, 0 to 10, and 11, which is no rung: the last one without
/// Tensor Cores.
const Kernel& ladder(std::size_t number);

/// The kernel made of CUTLASS, which pools with atomicMax.
const Kernel& cutlass_pooled();

}  // namespace convoy::cuda::teaching
