// The few facts about a GPU that tiles depend on. Plain arithmetic: needs no CUDA, and serves GPUs
// that are not here (known_gpus.hpp).
#pragma once

#include <cstddef>
#include <string>

#include "core/machine.hpp"

namespace convoy::cuda {

/// Facts read from a device, never assumed.
struct DeviceFacts {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int sms = 0;
  std::size_t shared_bytes = 0;  // of one CTA, opted in
  std::size_t l2_bytes = 0;
  std::size_t memory_bytes = 0;
  double clock = 0;  // Hz, the highest of the SMs; 0: the driver does not tell
  double memory_bandwidth =
      0;  // bytes/s: the memory's clock times the width of its bus; 0: as well
  bool operator==(const DeviceFacts&) const = default;
};

/// What the planner knows of a device, and back: the part of it that tiles depend on. `driver`: the
/// CUDA version that its driver serves, where there is one. What the driver does not tell is an
/// estimate, with a warning in the Machine: a cost of an infinity would be an error.
Machine machine_of(const DeviceFacts& facts, const std::string& driver = {});
DeviceFacts facts_of(const Machine& machine);

}  // namespace convoy::cuda
