// How fast the multiprocessors' clock runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace convoy::cuda {

struct ClockReading {
  std::int64_t cycles = 0, nanoseconds = 0;
};

/// Enqueues a thread that waits for `nanoseconds` and counts the cycles of its multiprocessor
/// meanwhile; `reading` is in device memory.
cudaError_t read_clock(ClockReading* reading, std::int64_t nanoseconds,
                       cudaStream_t stream) noexcept;

}  // namespace convoy::cuda
