// Where a machine's third-level cache lies, which the cost models of several kernels ask.
#pragma once

#include "core/machine.hpp"

namespace convoy::cpu {

/// Whether it is a server's, spread over a mesh, of which most lies near no core; else it is small
/// and near its cores.
inline bool far_third_level(const Machine& machine) {
  return machine.l3_bytes > std::size_t{96} << 20;
}

}  // namespace convoy::cpu
