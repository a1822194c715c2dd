// What the planner and the cost models know of a device: facts read from it, never assumed.
#pragma once

#include <string>
#include <string_view>

#include "convoy/tensor.hpp"

namespace convoy {

struct CoreCosts;  // cpu/shared/core_costs.hpp

struct Machine {
  Device device{};
  std::string name;       // "AMD EPYC (Zen 4)", "NVIDIA H200"
  std::string cpu_model;  // a CPU's family-model-stepping, "6-143-8"; others may share its name
  int threads = 1;        // that a plan on it will use
  // CPU
  std::string isa;            // what run-time dispatch chose: "avx512", "avx2", "neon", "scalar"
  int vector_floats = 1;      // fp32 lanes of one vector
  int vector_registers = 16;  // that a loop may use
  bool halves = false;  // a vector's multiply-add is done as two halves, as Zen 4's 512-bit ones
  bool mesh = false;    // L3 is spread over a server's mesh: most of it lies near no core
  std::size_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 8 << 20;
  const CoreCosts* costs = nullptr;  // of its class of cores; set with the estimates below
  double peak_flops = 0;        // of `threads` threads, fp32 FMA = 2; an estimate until measured
  double memory_bandwidth = 0;  // bytes/s, an estimate until measured
  // GPU: peak_flops is that of fp32, tensor_flops that of the tensor cores on dense fp16, at the
  // highest clock
  double tensor_flops = 0;
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  double clock_hz = 0;                  // of a multiprocessor, the highest
  std::size_t shared_memory_bytes = 0;  // that one CTA may have
  std::size_t memory_bytes = 0;
  std::string driver;   // the CUDA version that the driver serves: "13.0"
  std::string warning;  // what its driver does not tell, and what is taken instead; empty: nothing
};

/// Of the CPU this process runs on what can be read: all but `threads` and the estimates. Throws
/// Error for a bad CONVOY_ISA (which keeps dispatch from going above an instruction set: "avx512",
/// "avx2", "neon", "scalar").
const Machine& cpu_facts();

/// Sets `isa` and what follows from it: lanes and registers. Throws Error for a name that is none.
void set_isa(Machine& machine, std::string_view isa);

/// A CPU of these facts, as a plan with so many threads sees it: with the estimates of its class of
/// cores, which are fixed, so that selection does not vary from run to run.
Machine with_threads(Machine facts, int threads);

/// The CPU this process runs on, with `threads` threads (0: CONVOY_NUM_THREADS or every usable
/// core). Throws Error for a bad CONVOY_NUM_THREADS or CONVOY_ISA.
Machine cpu_machine(int threads = 0);

/// Cores that this thread may use: its affinity mask and the CPU quotas of its cgroups, at least 1.
int usable_cores();

/// Cores in the affinity mask of the process, which is that of its first thread; at least 1.
int cores_of_process() noexcept;

/// Lets the calling thread run on all of them, whatever thread made it.
void use_cores_of_process() noexcept;

/// Cores in an affinity mask that `ask` fills in, as sched_getaffinity does; it is given room for
/// more cores than Linux knows. At least 1.
int cores_in_mask(bool (*ask)(std::size_t bytes, void* mask)) noexcept;

/// Cores that the CPU quotas of a process's cgroup and of those above it allow, 0 where there is
/// none. membership: the text of /proc/PID/cgroup; mounted: where the hierarchies are.
int quota_cores(const std::string& membership, const std::string& mounted);

}  // namespace convoy
