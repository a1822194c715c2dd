#include "cuda/device_facts.hpp"

#include <fmt/core.h>

namespace convoy::cuda {
namespace {

/// fp32 multiply-adds a clock of one SM, and fp16 ones of its tensor cores (dense, fp32 sums).
struct Rate {
  int capability, fp32, tensor;
};
constexpr Rate rates[] = {{75, 64, 512},    {80, 64, 1024},   {86, 128, 256},
                          {87, 128, 512},   {89, 128, 512},   {90, 128, 2048},
                          {100, 128, 4096}, {103, 128, 4096}, {120, 128, 512}};

}  // namespace

Machine machine_of(const DeviceFacts& facts, const std::string& driver) {
  Machine machine;
  machine.device = {DeviceKind::cuda, facts.index};
  machine.name = facts.name;
  machine.compute_capability = 10 * facts.major + facts.minor;
  machine.isa = fmt::format("sm_{}", machine.compute_capability);
  machine.l1_bytes = machine.l3_bytes = 0;
  machine.l2_bytes = facts.l2_bytes;
  machine.multiprocessors = facts.sms;
  machine.clock_hz = facts.clock;
  machine.shared_memory_bytes = facts.shared_bytes;
  machine.memory_bytes = facts.memory_bytes;
  machine.memory_bandwidth = facts.memory_bandwidth;
  machine.driver = driver;
  Rate rate = rates[0];
  for (const Rate& known : rates)
    if (known.capability <= machine.compute_capability) rate = known;
  machine.peak_flops = 2.0 * rate.fp32 * facts.sms * facts.clock;
  machine.tensor_flops = 2.0 * rate.tensor * facts.sms * facts.clock;
  return machine;
}

DeviceFacts facts_of(const Machine& machine) {
  DeviceFacts facts;
  facts.index = machine.device.index;
  facts.name = machine.name;
  facts.major = machine.compute_capability / 10;
  facts.minor = machine.compute_capability % 10;
  facts.sms = machine.multiprocessors;
  facts.clock = machine.clock_hz;
  facts.shared_bytes = machine.shared_memory_bytes;
  facts.l2_bytes = machine.l2_bytes;
  facts.memory_bytes = machine.memory_bytes;
  facts.memory_bandwidth = machine.memory_bandwidth;
  return facts;
}

}  // namespace convoy::cuda
