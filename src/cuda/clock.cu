#include "cuda/clock.hpp"
#include "cuda/launch.hpp"

namespace convoy::cuda {
namespace {

__device__ std::int64_t global_nanoseconds() {
  std::int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void count_cycles(ClockReading* reading, std::int64_t nanoseconds) {
  // The global timer moves in steps: both readings are taken just after one.
  const auto step = [] {
    const std::int64_t before = global_nanoseconds();
    std::int64_t now;
    do now = global_nanoseconds();
    while (now == before);
    return now;
  };
  const std::int64_t start = step();
  const std::int64_t first = clock64();
  std::int64_t now;
  do now = step();
  while (now - start < nanoseconds);
  *reading = {clock64() - first, now - start};
}

}  // namespace

cudaError_t read_clock(ClockReading* reading, std::int64_t nanoseconds,
                       cudaStream_t stream) noexcept {
  return launch(count_cycles, {1, 1, 0, stream}, reading, nanoseconds);
}

}  // namespace convoy::cuda
