// Where `cutlass_pooled` pools a row of its matrix to: host arithmetic, used on the device.
#pragma once

#include "math/host_device.hpp"

namespace convoy::cuda::teaching {

/// Row m = (n * P + p) * Q + q of the implicit GEMM lies in the window (n, p / 2, q / 2): the
/// number of that pixel among the pooled ones. `rows`: m / Q, which is n * P + p; with P even, half
/// of it is n * (P / 2) + p / 2, so that n and p need not be told apart.
CONVOY_HD int pooled_row(int rows, int q, int pooled_q) {
  return rows / 2 * pooled_q + q / 2;
}

}  // namespace convoy::cuda::teaching
