// The OpenMP runtime that a process has, PyTorch's say, as threads for plans.
#pragma once

#include "convoy/threads.hpp"

namespace convoy::python {

/// Its threads, as many as its parallel regions have here, so that regions of others find the team
/// as they left it; null where the process has no runtime (of GCC, LLVM or Intel).
CallerThreads openmp_threads();

}  // namespace convoy::python
