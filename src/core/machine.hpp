// What the planner and the cost models know of a device: facts read from it, never assumed.
#pragma once

#include <string>

#include "convoy/tensor.hpp"

namespace convoy {

struct Machine {
  Device device{};
  std::string name;  // "AMD EPYC (Zen 4)", "NVIDIA H200"
  int threads = 1;   // that a plan on it will use
  // CPU
  std::string isa;        // what run-time dispatch chose: "avx512", "avx2", "neon", "scalar"
  int vector_floats = 1;  // fp32 lanes of one vector
  bool halves = false;    // a vector's multiply-add is done as two halves, as Zen 4's 512-bit ones
  std::size_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 8 << 20;
  double peak_flops = 0;        // of `threads` threads, fp32 FMA = 2; an estimate until measured
  double memory_bandwidth = 0;  // bytes/s, an estimate until measured
  // GPU: peak_flops is that of fp32, tensor_flops that of the tensor cores on dense fp16, at the
  // highest clock
  double tensor_flops = 0;
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  std::size_t shared_memory_bytes = 0;  // that one CTA may have
  std::size_t memory_bytes = 0;
  std::string driver;  // the CUDA version that the driver serves: "13.0"
};

/// The CPU this process runs on, with `threads` threads (0: CONVOY_NUM_THREADS or every usable
/// core). peak_flops and memory_bandwidth are fixed estimates, so that selection does not vary from
/// run to run. Throws Error for a bad CONVOY_NUM_THREADS or CONVOY_ISA (which keeps dispatch from
/// going above an instruction set: "avx512", "avx2", "neon", "scalar").
Machine cpu_machine(int threads = 0);

/// Cores that this process may use: its affinity mask and its cgroup's CPU quota, at least 1.
int usable_cores();

}  // namespace convoy
