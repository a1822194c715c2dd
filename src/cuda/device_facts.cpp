#include "cuda/device_facts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace convoy::cuda {
namespace {

/// fp32 multiply-adds a clock of one SM, and fp16 ones of its tensor cores (dense, fp32 sums). And
/// bytes/s of memory for each SM, of a typical GPU: what is taken where the driver tells none, as
/// for the chips that share their host's memory.
struct Rate {
  int capability, fp32, tensor;
  double memory;
};
constexpr Rate rates[] = {{75, 64, 512, 8e9},      // T4: 320 GB/s for 40
                          {80, 64, 1024, 15e9},    // A100: 1,555 GB/s for 108
                          {86, 128, 256, 10e9},    // A10: 600 GB/s for 72
                          {87, 128, 512, 13e9},    // Orin: 205 GB/s for 16
                          {89, 128, 512, 6e9},     // L40S: 864 GB/s for 142
                          {90, 128, 2048, 25e9},   // H100: 3,350 GB/s for 132
                          {100, 128, 4096, 50e9},  // B200: 8,000 GB/s for 148
                          {103, 128, 4096, 50e9}, {110, 128, 4096, 13e9},  // Thor: 273 GB/s for 20
                          {120, 128, 512, 10e9},  // RTX 5090: 1,792 GB/s for 170
                          {121, 128, 512, 6e9}};  // GB10: 273 GB/s for 48
constexpr double typical_clock = 1.5e9;

/// A number of the driver's, or what is taken where it is none, and then a word of it.
double told(double number, double instead, const char* what, const char* unit, double in_units,
            std::string& warning) {
  if (std::isfinite(number) && number > 0) return number;
  warning += fmt::format(
      "{}the driver does not give the {} (found {}): predictions use {:.0f} {}, which is typical "
      "of such GPUs, and may be wrong. Tune important stages (convoy tune)",
      warning.empty() ? "" : "; ", what, number, instead * in_units, unit);
  return instead;
}

}  // namespace

Machine machine_of(const DeviceFacts& facts, const std::string& driver) {
  Machine machine;
  machine.device = {DeviceKind::cuda, facts.index};
  machine.name = facts.name;
  machine.compute_capability = 10 * facts.major + facts.minor;
  machine.isa = fmt::format("sm_{}", machine.compute_capability);
  machine.l1_bytes = machine.l3_bytes = 0;
  machine.l2_bytes = facts.l2_bytes;
  machine.multiprocessors = std::max(1, facts.sms);
  machine.shared_memory_bytes = facts.shared_bytes;
  machine.memory_bytes = facts.memory_bytes;
  machine.driver = driver;
  Rate rate = rates[0];
  for (const Rate& known : rates)
    if (known.capability <= machine.compute_capability) rate = known;
  const int sms = std::max(1, facts.sms);
  machine.clock_hz = told(facts.clock, typical_clock, "clock", "MHz", 1e-6, machine.warning);
  machine.memory_bandwidth = told(facts.memory_bandwidth, rate.memory * sms, "speed of its memory",
                                  "GB/s", 1e-9, machine.warning);
  machine.peak_flops = 2.0 * rate.fp32 * sms * machine.clock_hz;
  machine.tensor_flops = 2.0 * rate.tensor * sms * machine.clock_hz;
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
