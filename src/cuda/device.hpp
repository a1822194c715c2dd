// What GPUs are here, and the few facts about them that tiles depend on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

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
  double clock = 0;             // Hz, the highest of the SMs
  double memory_bandwidth = 0;  // bytes/s: the memory's clock times the width of its bus
  bool operator==(const DeviceFacts&) const = default;
};

/// GPUs that CUDA can see, and why there are none (no driver, driver too old, ...) where there are
/// none. Needs no driver: a machine without one gets an empty list and the reason.
struct Discovery {
  std::vector<DeviceFacts> devices;
  std::string why_none;  // and what to do
};
Discovery discover();

/// Why CUDA's answer to how many devices there are means that none is usable, and what to do;
/// empty: there are some. `driver` as driver_version() says.
std::string why_no_device(cudaError_t error, int count, const std::string& driver);

/// What a build has code for, from CMake's list: "75-real 90-virtual" is "machine code for compute
/// capability 7.5; PTX for 9.0 and later".
std::string architectures_text(std::string_view list);

/// The CUDA version that the driver serves, "13.0"; empty: there is no driver.
std::string driver_version();

/// Facts of one device; throws Error that says what is there.
DeviceFacts facts_of(int index);

/// What the planner knows of a device, and back: the part of it that tiles depend on.
Machine machine_of(const DeviceFacts& facts);
DeviceFacts facts_of(const Machine& machine);

}  // namespace convoy::cuda
