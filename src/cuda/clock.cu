#include "cuda/clock.hpp"
#include "cuda/launch.hpp"
#include "cuda/stamps.hpp"

namespace convoy::cuda {
namespace {

__device__ std::int64_t global_nanoseconds() {
  std::int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// The global timer moves in steps: just after one, its reading is what it says.
__device__ std::int64_t next_step(std::int64_t* before = nullptr) {
  const std::int64_t then = global_nanoseconds();
  std::int64_t now;
  do now = global_nanoseconds();
  while (now == then);
  if (before) *before = then;
  return now;
}

// A CTA fills a multiprocessor, so that each gets one.
__global__ void read_all_clocks(SmClock* of) {
  // In which all have begun, and in which the host enqueues what shall follow at once.
  constexpr std::int64_t nanoseconds = 30'000;
  std::uint32_t sm;
  asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
  SmClock read;
  std::int64_t before;
  read.first.nanoseconds = next_step(&before);
  read.first.cycles = clock64();
  read.step = read.first.nanoseconds - before;
  do {
    read.last.nanoseconds = next_step(&before);
    read.last.cycles = clock64();
    read.step = min(read.step, read.last.nanoseconds - before);
  } while (read.last.nanoseconds - read.first.nanoseconds < nanoseconds);
  if (sm < most_sms) of[sm] = read;
}

__global__ void count_cycles(ClockReading* reading, std::int64_t nanoseconds) {
  const std::int64_t start = next_step();
  const std::int64_t first = clock64();
  std::int64_t now;
  do now = next_step();
  while (now - start < nanoseconds);
  *reading = {clock64() - first, now - start};
}

}  // namespace

cudaError_t read_clock(ClockReading* reading, std::int64_t nanoseconds,
                       cudaStream_t stream) noexcept {
  return launch(count_cycles, {1, 1, 0, stream}, reading, nanoseconds);
}

cudaError_t read_clocks(SmClock* of, int sms, cudaStream_t stream) noexcept {
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess)
    error =
        cudaFuncSetAttribute(read_all_clocks, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  if (error != cudaSuccess) return error;
  return launch(read_all_clocks, {sms, 32, most, stream}, of);
}

}  // namespace convoy::cuda
